"""The command `completion`: prints what a shell needs to complete the command line of a program.

The scripts contain the words of the command line, so that a completion does not start Python.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator

from relay_core.program.parser import commands_of


def add_completion_command(
    parser: argparse.ArgumentParser, commands: argparse._SubParsersAction[argparse.ArgumentParser]
) -> None:
    """Add the command to a program.

    Args:
        parser: The parser of the whole command line, with all its other commands.
        commands: Its commands.
    """
    added = commands.add_parser(
        "completion",
        help="print the completion script for your shell",
        description=f"Prints the completion script for a shell. For bash, add 'source <({parser.prog} completion "
        f"bash)' to ~/.bashrc. For zsh, add 'source <({parser.prog} completion zsh)' to ~/.zshrc, after compinit. For "
        f"fish, write the output to ~/.config/fish/completions/{parser.prog}.fish.",
        argument_default=argparse.SUPPRESS,
    )
    added.add_argument("shell", choices=_SCRIPTS, help="your shell")
    added.set_defaults(command=functools.partial(_print_script, parser), keeps_running=False)


def _print_script(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    print(_SCRIPTS[arguments.shell](parser), end="")  # noqa: T201 - the requested output
    return 0


_BASH = """\
# bash completion for {program}
{function}() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[$((COMP_CWORD-1))]}} command= word words=
    for word in "${{COMP_WORDS[@]:1:$((COMP_CWORD-1))}}"; do
        case $word in
            {commands}) command=$word; break ;;
        esac
    done
    case $command:$previous in
{values}
        *) case $command in
{words}
        esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o bashdefault -o default -F {function} {program}
"""
"""Where no word of the program fits, such as after an option that takes a file, bash completes file names."""


def bash_script(parser: argparse.ArgumentParser) -> str:
    """Return the script for bash."""
    commands = commands_of(parser)
    parsers = {"": parser, **commands}
    values = [line for name, command in parsers.items() for line in _value_patterns(name, command)]
    words = [f"            '{name}') words='{' '.join(_words(command))}' ;;" for name, command in parsers.items()]
    return _BASH.format(
        program=parser.prog,
        function=f"_{parser.prog.replace('-', '_')}",
        commands="|".join(commands),
        values="\n".join(values),
        words="\n".join(words),
    )


def _value_patterns(name: str, command: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the cases in which the word is the value of an option: one of its choices, or anything."""
    free = []
    for action in _options(command):
        patterns = [f"{name}:{option}" for option in action.option_strings]
        if action.choices:
            yield f"        {'|'.join(patterns)}) words='{' '.join(map(str, action.choices))}' ;;"
        elif action.nargs != 0:
            free += patterns
    if free:
        yield f"        {'|'.join(free)}) ;;"


def zsh_script(parser: argparse.ArgumentParser) -> str:
    """Return the script for zsh, which can run the bash script."""
    return f"autoload -U +X bashcompinit && bashcompinit\n{bash_script(parser)}"


def fish_script(parser: argparse.ArgumentParser) -> str:
    """Return the script for fish."""
    commands = commands_of(parser)
    names = " ".join(commands)
    before = f"not __fish_seen_subcommand_from {names}"
    lines = [f"# fish completion for {parser.prog}"]
    lines += [f"complete -c {parser.prog} -n '{before}' -f -a {name}" for name in commands]
    conditions = {"": before, **{name: f"__fish_seen_subcommand_from {name}" for name in commands}}
    for name, command in {"": parser, **commands}.items():
        start = f"complete -c {parser.prog} -n '{conditions[name]}'"
        for action in _options(command):
            long = " ".join(f"-l {option.removeprefix('--')}" for option in action.option_strings if option[:2] == "--")
            choices = f" -f -a '{' '.join(map(str, action.choices))}'" if action.choices else ""
            lines.append(f"{start} {long}{' -r' if action.nargs != 0 else ''}{choices}")
        if name and (positional := " ".join(_positional_words(command))):
            lines.append(f"{start} -f -a '{positional}'")
    return "\n".join(lines) + "\n"


_SCRIPTS = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}


def _options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.option_strings]  # noqa: SLF001 - as in `commands_of`


def _words(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from _positional_words(parser)
    for action in _options(parser):
        yield from (option for option in action.option_strings if option.startswith("--"))


def _positional_words(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:  # noqa: SLF001 - as in `commands_of`
        if not action.option_strings and action.choices:
            yield from map(str, action.choices)
