"""Texts from elsewhere, and what each place to which they go makes of them. No I/O.

What comes from a job, an agent, a relay, a proxy or another user is data: never a command, a variable, a link, an
escape sequence or an instruction. A text does harm only where something interprets it, and each of these places (a
*sink*) reads another language. So no text is made safe once for all where it arrives. It is made fit for one sink where
it enters that sink, by the function below. The result has a type of its own, and the entrance of the sink accepts only
this type: mypy reports a text that takes another way.

    sink                     what it interprets                rule
    editor's configuration   `${env:X}`, `${command:ID}` in    `configuration_name`: our own text, of letters, digits
    (child sessions)         every key and text                and ` .:()-`; other fields are the editor's own, and
                                                               `has_variable` refuses those that contain `${`
    path of a source file    URIs, which the extension of the  `is_remote_path`: such a path is left out
                             scheme opens at a stop; names of
                             other machines (TRAMP, UNC)
    notification, dialog     `[text](target)` becomes a link,  `notification`: one line, `](` broken up; `failure`: as
                             also `command:ID?ARGUMENTS`       well, for a reason of several lines; no URL, no button;
                             `{name}` in an error is replaced  `message_format`: parentheses in place of braces
    debug console            SGR colors; `scheme://` and paths `console_output`: SGR colors, tabs and line ends stay;
                             are links on Ctrl+click, but not  other escape sequences, control characters and overrides
                             `command:`; OSC 8 is not read     of the text direction are removed
    terminal, log, errors    escape sequences, line ends       `escape_controls`: one line, the rest escaped;
                                                               `terminal_text`: several lines, and colors of output
    names in sentences       as the sink of the sentence       `short_name`: printable characters, limited length
    announcements            as the sink that shows them       `printable`: one printable line, limited length
    page                     HTML                              JSON, shown as `textContent`: no text becomes HTML
    file name                `..`, separators, device names    `relay_core.agent_api.event_files.is_safe_path`
    MCP                      instructions to a coding agent    strings in JSON results; tools and their descriptions
                                                               contain no foreign text

What editors interpret was read in VS Code 1.139 (`notificationsViewer`, `debugANSIHandling`, `linkDetector`,
`debugService`, `configurationResolver`); other editors interpret less, but for the names of machines in paths. Jobs
import this module, so it imports nothing, and its expressions, whose compilation takes 0.7 ms, are compiled when they
are first used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NewType

ConfigurationName = NewType("ConfigurationName", str)
"""The name of a debug session that an editor opens."""
Notification = NewType("Notification", str)
"""One line that an editor may show as a notification."""
Failure = NewType("Failure", str)
"""Why a request has failed; an editor may show it as a notification, in a dialog or in its debug console."""
ConsoleOutput = NewType("ConsoleOutput", str)
"""Output of a job for an editor's debug console."""
Line = NewType("Line", str)
"""One line for a terminal or a log."""

MAX_TEXT = 200
"""Maximum number of characters in a text from another machine, such as an exception message."""
MAX_NAME = 64
"""Maximum length of a user or owner name; these names appear in announcements, refusals and log lines."""
MAX_NOTIFICATION = 4000
"""Maximum number of characters in a notification; VS Code shows the first 1,000."""
MAX_FAILURE = 64 * 1024
"""Maximum number of characters in the reason of a failure, such as a traceback."""

_NOT_IN_NAME = r"[^\w .:()-]+"
_REMOTE_PATH = r"[A-Za-z][A-Za-z0-9+.-]+:|/[A-Za-z0-9-]+:|[\\/]{2}"
_SEQUENCE = (
    "(\x1b\\[[0-9;:]*(?:m|\\Z))"  # SGR, which stays; at the end of a text, the rest of it may follow
    "|\x1b\\[[0-?]*[ -/]*[@-~]?"
    "|\x1b[\\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\\\)?"  # OSC, DCS, SOS, PM, APC, with their texts
    "|[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)


def configuration_name(name: object, pid: int) -> ConfigurationName:
    """Return the name of the session for a child process: `rank 0: child 4242`.

    Args:
        name: The name of the editor's own session.
        pid: The process id.
    """
    own = " ".join(re.sub(_NOT_IN_NAME, " ", name).split())[:48].rstrip(" :") if isinstance(name, str) else ""
    return ConfigurationName(f"{own or 'debug session'}: child {pid}")


def has_variable(value: object) -> bool:
    """Return whether an editor would replace a part of a configuration, because a key or a text contains `${`."""
    if isinstance(value, Mapping):
        return any(has_variable(key) or has_variable(each) for key, each in value.items())
    if isinstance(value, list):
        return any(map(has_variable, value))
    return isinstance(value, str) and "${" in value


def is_remote_path(path: object) -> bool:
    """Return whether an editor may open a path by a connection.

    It is a URI, whose scheme is longer than a drive letter, a name of Emacs' TRAMP (`/ssh:host:/x.py`), or a UNC path.
    """
    return isinstance(path, str) and re.match(_REMOTE_PATH, path) is not None


def notification(text: str) -> Notification:
    """Return a text as one line in which no link begins."""
    return Notification(_without_links(printable(text, MAX_NOTIFICATION)))


def failure(text: str) -> Failure:
    """Return a text, possibly of several lines, as the reason of a failed request; no link begins in it."""
    lines = text[:MAX_FAILURE].splitlines()
    plain = ["".join([char if char.isprintable() or char == "\t" else " " for char in line]) for line in lines]
    return Failure(_without_links("\n".join(plain)))


def message_format(text: str) -> Failure:
    """Return a reason as the `format` of an error, in which editors replace names in braces."""
    return failure(text.replace("{", "(").replace("}", ")"))


def _without_links(text: str) -> str:
    return text.replace("](", "] (")


def console_output(text: str) -> ConsoleOutput:
    """Return output of a job with its colors and lines, without other escape sequences and control characters."""
    if text.replace("\n", "").isprintable():  # usually; this takes a tenth of the time of the expression
        return ConsoleOutput(text)
    return ConsoleOutput(re.sub(_SEQUENCE, lambda found: found[1] or "", text))


def escape_controls(text: str) -> Line:
    """Return a text as one line, with line breaks and other unprintable characters as escape sequences."""
    return Line("".join(char if char.isprintable() else ascii(char)[1:-1] for char in text))


_KEPT_IN_LINES = r"([\n\t])"
_KEPT_IN_OUTPUT = r"([\n\t\r]|\x1b\[[0-9;:]*m)"
"""Matches what a program may print on a terminal: ends of lines, the carriage return of a progress bar, and colors."""
_NO_COLOR = "\x1b[0m"


def terminal_text(text: str, *, is_output: bool = False) -> str:
    """Return lines for a terminal, with all unprintable characters but tabs as escape sequences.

    Args:
        text: One or more lines.
        is_output: Whether a program has printed the text. It then keeps carriage returns and colors, which end with
            the text: they can neither hide nor color what follows.
    """
    parts = re.split(_KEPT_IN_OUTPUT if is_output else _KEPT_IN_LINES, text)
    parts[::2] = map(escape_controls, parts[::2])
    return "".join([*parts, _NO_COLOR]) if is_output and "\x1b[" in text else "".join(parts)


def printable(value: object, limit: int = MAX_TEXT) -> str:
    """Return a text as one printable line of at most `limit` characters; "" if the value is not a text."""
    if not isinstance(value, str):
        return ""
    cleaned = " ".join("".join(char if char.isprintable() else " " for char in value[: 4 * limit]).split())
    return cleaned if len(cleaned) <= limit else f"{cleaned[: limit - 3]}..."


def short_name(name: str) -> str:
    """Return the printable characters of a name, at most `MAX_NAME` of them."""
    return "".join(char for char in name[: 4 * MAX_NAME] if char.isprintable())[:MAX_NAME]
