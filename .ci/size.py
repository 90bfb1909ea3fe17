"""Prints the lines of code of the packages and of the largest folders, without blank lines, comments and docstrings.

Below them it prints how many there are of each kind of mechanism, so that a second one for the same job is noticed.

python .ci/size.py [COMMIT]     also prints the change since a commit, by default since the last release if there is one
"""

from __future__ import annotations

import functools
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import PurePath

PACKAGES = ("relay_core", "relay_agent", "relay_client", "relay_server")
LARGEST = 5
LAYOUT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}
MECHANISMS = {
    "questions": r"^class \w+\(Question\)",
    "requests to agents": r"^class \w+\(AgentRequest\)",
    "verbs": r"^class \w+\(Verb\)",
    "layers": r"^class \w+\(Layer\)",
    "debug sessions": r"^class \w*Session\w*\(DebugSession\)|^class (?:Editor|Job)Session\b",
    "state enumerations": r"^class \w+\([\w, .]*Enum\)",
    "option actions": r"^class \w+\(argparse\.Action\)",
    "threads": r"^class \w+\(threading\.Thread\)",
}
"""What counts as one of each kind, as a pattern over the lines of the packages."""


def main() -> int:
    """Print the table."""
    since = sys.argv[1:2] or git("describe", "--tags", "--abbrev=0").split()
    now = sizes("HEAD")
    before = sizes(since[0]) if since else now
    for name in (*PACKAGES, ""):
        print(f"{name or 'all':20} {of(now, name):7,}{change(of(now, name) - of(before, name), since)}")
    rooms = Counter[str]()
    for file, lines in now.items():
        rooms["/".join(PurePath(file).parts[:2])] += lines
    print("\nlargest folders")
    for name, lines in rooms.most_common(LARGEST):
        print(f"{name:20} {lines:7,}{change(lines - of(before, name), since)}")
    found = texts("HEAD")
    earlier = texts(since[0]) if since else found
    print("\nmechanisms")
    for name, pattern in MECHANISMS.items():
        count = len(re.findall(pattern, found, re.MULTILINE))
        print(f"{name:20} {count:7,}{change(count - len(re.findall(pattern, earlier, re.MULTILINE)), since)}")
    return 0


def texts(commit: str) -> str:
    """Return the text of all files of the packages in a commit."""
    return "\n".join(contents(commit).values())


def sizes(commit: str) -> dict[str, int]:
    """Return the lines of code of each file in a commit."""
    return {file: code_lines(text) for file, text in contents(commit).items()}


@functools.cache
def contents(commit: str) -> dict[str, str]:
    """Return the text of each file of the packages in a commit."""
    files = git("ls-tree", "-r", "--name-only", commit, *PACKAGES).split()
    return {file: git("show", f"{commit}:{file}") for file in files if file.endswith(".py")}


def of(found: dict[str, int], folder: str) -> int:
    """Return the lines of all files in a folder."""
    return sum(lines for file, lines in found.items() if file.startswith(f"{folder}/" if folder else ""))


def change(lines: int, since: list[str]) -> str:
    """Return the change as text."""
    return f"  {lines:+,} since {since[0]}" if since else ""


def code_lines(text: str) -> int:
    """Return how many lines contain more than comments and texts that are statements of their own."""
    lines: set[int] = set()
    starts_statement = True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in LAYOUT:
            starts_statement = starts_statement or token.type in {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
            continue
        if not (token.type == tokenize.STRING and starts_statement):
            lines.update(range(token.start[0], token.end[0] + 1))
        starts_statement = False
    return len(lines)


def git(*arguments: str) -> str:
    """Return the output of a git command; "" if it fails."""
    command = ["git", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


if __name__ == "__main__":
    sys.exit(main())
