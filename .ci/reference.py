"""Writes the pages of docs/reference and the types of vscode/src that come from the code.

`--check` only compares, and exits with 1.

python .ci/reference.py
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from relay_agent.cli import make_parser as agent_parser
from relay_agent.debugpy_internals.feature import CHECKED_VERSIONS, Internal
from relay_agent.debugpy_internals.table import FEATURES
from relay_agent.settings.arguments import add_debug_arguments
from relay_agent.settings.environment import ACCESS_VARIABLES
from relay_agent.settings.table import SETTINGS
from relay_client.cli import make_parser as client_parser
from relay_client.cli.common import PROGRAM
from relay_client.cli.forward import forwarding_options
from relay_client.control.messages import Attached
from relay_client.control.state import Status
from relay_client.ranks.changes import Event
from relay_core.access_settings import ACCESS_OPTIONS
from relay_core.program.options import CREDENTIALS, access_options
from relay_core.records import fields_of
from relay_server.cli import make_parser as server_parser

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.programs.page import programs_page

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
NOTE = "<!-- Generated from the code by .ci/reference.py: change the code and run the script. -->\n"
OTHER_VARIABLES = (
    ("RELAY_TUNNEL_KEY", "agent, client", "the tunnel key: 32 bytes encoded as base64"),
    ("AZRELAY_CONNECTION_STRING", "agent, client", "connection string, for users of the azure-debug-relay package"),
    ("AZRELAY_CONNECTION_NAME", "job, agent, client", "hybrid connection, for users of the azure-debug-relay package"),
    ("AZRELAY_NAME", "agent, client", "older name of `AZRELAY_CONNECTION_NAME`, in `.azrelay.json` only"),
    ("RELAY_PING_AFTER", "agent, client", "time without data after which the peer is pinged (default: `10s`)"),
    (
        "RELAY_DEAD_AFTER",
        "agent, client",
        "time without data after which a connection is closed and replaced (default: `25s`)",
    ),
    (
        "RELAY_KEEP",
        "agent, client",
        "how long a lost session is kept (default: `3h` on the client; on the agent `2m`, or `30m` with a debugger)",
    ),
    (
        "RELAY_MAX_SESSIONS",
        "agent",
        "number of clients that an agent serves, including those that have lost their connection (default: `32`)",
    ),
    (
        "RELAY_PYTHON",
        "job",
        (
            "path of the Python that runs the agent and the debug adapter (default: the Python of the job). Set it if "
            "the program of the job embeds Python, so that its executable is not a Python interpreter; relay-debug "
            "must be installed in this Python"
        ),
    ),
    (
        "RELAY_NODE_DIR",
        "job, agent",
        "directory in which the processes of a node find their agent (default: a private directory in /tmp)",
    ),
    (
        "RELAY_CLIENT_DIR",
        "client",
        (
            "directory of the control sockets (default: a private directory in /tmp, where the port locks always are) "
            "and of the audit log of `relay-client mcp` (default: `~/.local/state/relay-debug`)"
        ),
    ),
    (
        "RELAY_EVENT_LOOP",
        "agent, client, server",
        "`asyncio` for asyncio's event loop instead of uvloop's (default: uvloop, if it is installed)",
    ),
    ("RELAY_RANK", "job", "rank of the process, if no launcher sets it"),
    ("RELAY_WORLD_SIZE", "job", "number of ranks in the job"),
    ("RELAY_LOCAL_RANK", "job", "rank of the process on its node"),
    ("RELAY_LOCAL_SIZE", "job", "number of ranks on the node"),
    ("RELAY_NODE_RANK", "job", "rank of the node"),
    ("RELAY_RUN_ID", "job", "name of the run, as shown to clients"),
    (
        "HTTPS_PROXY",
        "agent, client",
        "proxy for outgoing connections; if unset, `ALL_PROXY`; `NO_PROXY` lists hosts and networks to reach directly",
    ),
)
"""Name, reader and meaning of the variables that no table in the code describes."""

INTERNAL_VARIABLES = (
    ("RELAY_DEBUG_REGISTERED", "pid, port and rank of the registered process, for its child processes"),
    ("RELAY_DEBUG_ADAPTER_PORT", "port of debugpy's adapter, for the child processes of a followed process"),
    ("RELAY_AGENT_STARTER", "pid of the process that started the node's agent"),
)


def commands_page() -> str:
    """Return the page about the three command lines and the arguments of a job."""
    job = argparse.ArgumentParser()
    add_debug_arguments(job)
    sections = [
        "# Commands\n",
        NOTE,
        "`COMMAND --help` prints the same text, and `relay-client help credentials` lists the credential options.\n",
        "If an error occurs, the command exits with one of the [exit codes](exit-codes.md).\n",
    ]
    for parser in (agent_parser(), client_parser(), server_parser()):
        sections += _sections(parser)
    credentials = next(group for group in access_options("")._action_groups if group.title == CREDENTIALS)
    sections += ["## Credential options\n", "See [Credentials](credentials.md) for their order.\n"]
    sections += [_options_table(credentials._group_actions)]
    sections += ["## Arguments of a job\n", "Read by `relay_agent.start_remote_debugging_from_args()`.\n"]
    sections += [_options_table(job._actions)]
    return "\n".join(sections)


def _sections(parser: argparse.ArgumentParser, summary: str = "") -> Iterator[str]:
    yield f"## {parser.prog}\n"
    yield _as_sentence(parser.description or summary) + "\n"
    shared = [
        action for group in parser._action_groups if group.title == CREDENTIALS for action in group._group_actions
    ]
    described = {_spelling(action): action for action in forwarding_options()._actions if parser.prog == PROGRAM}
    yield _options_table(
        [described.get(_spelling(action), action) for action in parser._actions if action not in shared]
    )
    if shared:
        yield "This command also accepts the [credential options](#credential-options).\n"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for listed in action._choices_actions:
                yield from _sections(action.choices[listed.dest], listed.help or "")


def _as_sentence(text: str) -> str:
    return text[0].upper() + text[1:].rstrip(".") + "."


def _options_table(actions: Sequence[argparse.Action]) -> str:
    listed = [
        action
        for action in actions
        if not isinstance(action, (argparse._HelpAction, argparse._SubParsersAction))
        and action.help != argparse.SUPPRESS
    ]
    return _table(("option", "meaning"), [(_spelling(action), _help(action)) for action in listed])


def _spelling(action: argparse.Action) -> str:
    metavar = action.metavar or ("|".join(action.choices) if action.choices else action.dest.upper())
    if action.nargs == 0:
        return ", ".join(f"`{text}`" for text in action.option_strings)
    value = f"[{metavar}]" if action.nargs == "?" else str(metavar)
    value = value.replace("|", "\\|")
    return ", ".join(f"`{text} {value}`" for text in action.option_strings) or f"`{value}`"


def _help(action: argparse.Action) -> str:
    return (action.help or "") % vars(action)


SETTINGS_PAGE = """\
# Settings of a debug run

{note}
A setting is an argument of a job (`python train.py --is-debug true --debug-port 5678`), an option of `relay-agent run`,
an environment variable, or a parameter of `relay_agent.start_remote_debugging`. It has the same meaning in all of them.

- In a job's arguments and in variables, a flag has a value: `true`, `1`, `yes` or `on`, or `false`, `0`, `no`, `off`,
  `none` or an empty value. A flag without a value is true; `relay-agent run --debug-on-crash true` is accepted too.
- `relay-agent run` and `python -m relay_agent` read the variables. A script that starts debugging in its own code, with
  `start_remote_debugging_from_args()` or `start_remote_debugging()`, reads only its arguments or the call's parameters.
- Durations are in seconds unless a unit is given: `90`, `90s`, `10m`, `1.5h`.
- An empty value is treated as if the setting were absent.
- In a call, flags are `True` or `False`, lists are lists, and durations are numbers or texts.

{settings}
## The relay to use

In a job's arguments, specify the relay with `--debug-relay-connection-name NAME` and
`--debug-relay-connection-string-secret NAME`. `relay-agent run` takes the
[credential options](commands.md#credential-options) and passes them to the job in the variables in the following table.
These variables take precedence over the [general variables](environment.md), as options do.

{access}
## On and off

| variable | value | meaning |
| --- | --- | --- |
| `RELAY_DEBUG` | `off`, or empty | debugging is disabled, even under `relay-agent run` |
| | `wait`, `true`, `1`, `yes` or `on` | the ranks of `RELAY_DEBUG_RANKS` wait for a debugger |
| | `on-demand` | no rank waits |

## OpenPAI

In an OpenPAI job, the variables of its paipdb tool are used if these variables are absent: `DEBUG_TIMEOUT` is the time
to wait, and `DEBUG_PORT_NAME` is the label of a reserved port list. Its first port in task 0 becomes the port of
rank 0.
"""

ENVIRONMENT_PAGE = """\
# Environment variables

{note}
The variables of debug settings are listed in [Settings](settings.md). The Entra identities use the variables
of the Azure SDK; see [Credentials](credentials.md). Durations are in seconds unless a unit is given: `90`, `90s`,
`10m`.

{variables}
## Internal

The programs set these variables for each other. Do not set them yourself.

{internal}"""


def settings_page() -> str:
    """Return the page about the settings of a debug run."""
    titles = ("argument and option", "alias in `relay-agent run`", "variable", "parameter", "default", "meaning")
    rows = [
        (
            f"`{setting.option}{'' if setting.is_flag else ' ' + setting.metavar}`",
            f"`{setting.alias}`" if setting.alias else "",
            f"`{setting.variable}`",
            f"`{setting.parameter}`",
            f"`{setting.default}`" if setting.default else "",
            setting.help,
        )
        for setting in SETTINGS
    ]
    access = [
        (f"`{option.option} {option.metavar}`", f"`{ACCESS_VARIABLES[option.field]}`", option.help)
        for option in ACCESS_OPTIONS
        if option.field in ACCESS_VARIABLES
    ]
    return SETTINGS_PAGE.format(
        note=NOTE,
        settings=_table(titles, rows),
        access=_table(("option of `relay-agent run`", "variable", "meaning"), access),
    )


def environment_page() -> str:
    """Return the page about all environment variables."""
    rows = [
        (f"`{option.variable}`", "agent, client", f"{option.help}; `{option.option}` takes precedence")
        for option in ACCESS_OPTIONS
        if option.variable
    ]
    rows += [(f"`{name}`", reader, text) for name, reader, text in OTHER_VARIABLES]
    return ENVIRONMENT_PAGE.format(
        note=NOTE,
        variables=_table(("variable", "used by", "meaning"), rows),
        internal=_table(("variable", "meaning"), [(f"`{name}`", text) for name, text in INTERNAL_VARIABLES]),
    )


DEBUGPY_PAGE = """\
# Private functions of debugpy

{note}
relay-debug makes debugpy faster and safer, and lets it stop and start again in the same process. To do so, it uses
undocumented functions of debugpy and of pydevd, the part of debugpy that runs in the job. The table lists all of them.
They were tested with every release of debugpy from {first} to {last}; `make test` runs debug sessions with the oldest
and the newest of these releases.

If one of these functions is missing or fails, debugging still works: the feature that needs it is disabled, debugpy's
own function is called, and the job logs one line on stderr that names the effect. Each row is tested with a debugpy in
which the name has changed (`tests/unit/relay_agent/debugpy_internals/test_feature.py`).

{features}
[Six of the patches](../upstream.md) mend problems of debugpy, and leave when a release of it has the change.

All other functions that relay-debug uses are public: `debugpy.listen`, `connect`, `configure`, `is_client_connected`,
`breakpoint` and `trigger_exception_handler`.

In the process of debugpy's adapter, `relay_agent.debuggee.adapter_guard` replaces `socket.accept` of the standard
library, so that the adapter's ports serve only one user. It also replaces two methods of
`debugpy.adapter.clients.Client`, so that no connection can end the thread that accepts connections, and an attach waits
until the previous session has ended.
"""


def debugpy_page() -> str:
    """Return the page about the private functions of debugpy that are used."""
    rows = [
        (f"{feature.without}" if first else "", f"`{internal.name.replace(':', '.')}`", internal.use, internal.why)
        for feature in FEATURES
        for first, internal in _with_first(feature.internals)
    ]
    titles = ("effect if it is missing", "function or attribute", "use", "purpose")
    first, last = CHECKED_VERSIONS
    return DEBUGPY_PAGE.format(note=NOTE, first=first, last=last, features=_table(titles, rows))


def _with_first(internals: Sequence[Internal]) -> Iterator[tuple[bool, Internal]]:
    return ((number == 0, internal) for number, internal in enumerate(internals))


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


TYPES_NOTE = "// Generated from the code by .ci/reference.py: docs/reference/control-socket.md explains the fields.\n"
TYPES = {str: "string", int: "number", float: "number", bool: "boolean", object: "unknown"}
TYPE_NAMES = {Event: "RelayEvent"}
"""Names that differ from those in Python: `Event` is a type of TypeScript's library."""


def control_types() -> str:
    """Return the TypeScript interfaces of the control socket's state, events and results."""
    found: dict[Any, str] = {}
    for kind in (Status, Event, Attached):
        _add_interface(kind, found)
    return "\n".join((TYPES_NOTE, *found.values()))


def _add_interface(kind: Any, found: dict[Any, str]) -> None:
    """Add the interface of a dataclass after those that it contains."""
    hints, lines = get_type_hints(kind), []
    for field in fields_of(kind):
        form = hints[field.name]
        is_optional = isinstance(form, UnionType)  # `X | None`: fields without a value are omitted
        if is_optional:
            form = next(each for each in get_args(form) if each is not NoneType)
        element = get_args(form)[0] if get_origin(form) is tuple else form
        if element not in TYPES and element not in found:
            _add_interface(element, found)
        name = TYPES.get(element) or TYPE_NAMES.get(element, element.__name__)
        lines.append(f"  {field.name}{'?' if is_optional else ''}: {name}{'[]' if element is not form else ''};\n")
    found[kind] = f"export interface {TYPE_NAMES.get(kind, kind.__name__)} {{\n{''.join(lines)}}}\n"


PAGES = {
    REFERENCE / "commands.md": commands_page,
    REFERENCE / "settings.md": settings_page,
    REFERENCE / "environment.md": environment_page,
    REFERENCE / "debugpy.md": debugpy_page,
    REFERENCE / "programs.md": lambda: programs_page(NOTE),
    ROOT / "vscode" / "src" / "controlTypes.ts": control_types,
}


def stale_pages() -> list[Path]:
    """Return the pages that differ from the code."""
    return [path for path, page in PAGES.items() if not path.is_file() or path.read_text(encoding="utf-8") != page()]


def main(argv: list[str]) -> int:
    """Write or compare the pages."""
    stale = stale_pages()
    if argv == ["--check"]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not current: run python .ci/reference.py", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(PAGES[path](), encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
