"""Facts about the completion of the command line, in real shells."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from relay_client.cli import make_parser
from relay_core.program.completion import bash_script, fish_script, zsh_script
from tests.support.machine.terminal import on_terminal

CASES = [
    ("relay-client tens", "relay-client tensorboard "),
    ("relay-client attach --idle", "relay-client attach --idle-exit "),
    ("relay-client --quiet attach --idle", "relay-client --quiet attach --idle-exit "),
    ("relay-client wait --state cra", "relay-client wait --state crashed "),
    ("relay-client init vs", "relay-client init vscode "),
    ("relay-client attach --connection-string-file my", "relay-client attach --connection-string-file my.secret "),
]

ERASE_LINE = "\x15"
"""Ctrl-U."""


def has(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


def lines_of(*command: str, folder: Path) -> list[str]:
    """Return what a command prints; it must not write errors."""
    environ = {**os.environ, "HOME": str(folder)}
    found = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=True)
    assert "" == found.stderr
    return found.stdout.splitlines()


def last_word(line: str) -> str:
    return line.rsplit(maxsplit=1)[-1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file and the scripts."""
    (tmp_path / "my.secret").touch()
    for name, script in (("bash", bash_script), ("zsh", zsh_script), ("fish", fish_script)):
        (tmp_path / f".{name}").write_text(script(make_parser()))
    return tmp_path


@has("bash")
async def test_bash(folder: Path) -> None:
    """At a prompt of bash, the tab key completes commands, options, their choices, and names of files."""
    shell = ["bash", "--norc", "--noprofile", "-i"]
    code = f"import os\nos.chdir({str(folder)!r})\nos.environ['PS1'] = '$ '\nos.execvp('bash', {shell!r})"
    async with on_terminal(code) as terminal:
        terminal.type("source .bash; echo rea''dy\n")
        await terminal.expect("ready\n")
        for line, completed in CASES:
            terminal.type(f"{line}\t")
            await terminal.expect(completed)
            terminal.type(ERASE_LINE)


@has("zsh")
@pytest.mark.parametrize(("line", "completed"), [case for case in CASES if "my" not in case[0]])
def test_zsh(folder: Path, line: str, completed: str) -> None:
    """So does zsh, with the options under which its bashcompinit calls the function of the script."""
    code = (
        "autoload -U compinit; compinit -u -D; source .zsh; [[ $_comps[relay-client] == *_relay_client* ]] || exit 1;"
        f"setopt ksharrays; COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _relay_client;"
        'print -l -- "${COMPREPLY[@]}"'
    )
    assert last_word(completed) in lines_of("zsh", "-f", "-c", code, folder=folder)  # zle selects those that match


@has("fish")
@pytest.mark.parametrize(("line", "completed"), CASES)
def test_fish(folder: Path, line: str, completed: str) -> None:
    """So does fish, asked for the completions of each line."""
    found = lines_of("fish", "--no-config", "-c", f"source .fish; complete -C '{line}'", folder=folder)
    assert last_word(completed) in [row.partition("\t")[0] for row in found]


@has("bash")
def test_an_empty_line_lists_the_commands(folder: Path) -> None:
    """Without a word, bash lists every command and option of the program."""
    code = "source .bash; COMP_WORDS=(relay-client ''); COMP_CWORD=1; _relay_client; printf '%s\\n' \"${COMPREPLY[@]}\""
    listed = lines_of("bash", "-c", code, folder=folder)
    assert {"attach", "stacks", "tensorboard", "completion", "--ports", "--forward", "--help"} <= {*listed}
