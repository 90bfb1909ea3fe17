"""The environment variables in which the settings of `relay-agent run` reach its job; people may set them by hand, too.

    RELAY_DEBUG                    off (or nothing), on-demand: nobody waits, or wait (1, true, yes, on)
    RELAY_DEBUG_HC                 hybrid connection
    RELAY_DEBUG_PORT               logical port of rank 0 (default 5678); rank n has n more
    RELAY_DEBUG_RANKS              ranks that wait: 0 (default), 0,3-5, all, master, none
    RELAY_DEBUG_WAIT               how long they wait, such as 600 (default) or 10m
    RELAY_DEBUG_ON_TIMEOUT         when nobody came: continue (default) or abort
    RELAY_DEBUG_ON_CRASH           1: hold a process at its first uncaught exception
    RELAY_DEBUG_HOLD               for how long, such as 30m (default)
    RELAY_DEBUG_TIMEOUTS           raise the watchdogs of collective communication to this, such as 24h
    RELAY_DEBUG_FORWARD            further ports that clients may reach, such as 6006,8888
    RELAY_DEBUG_FOLLOW_CHILDREN    1: offer child processes to the debugger too

The credential options have variables of the same form, RELAY_DEBUG_NAMESPACE and so on: what a command line says comes
before what the environment says (`relay_core.auth.access`), in the processes of the job too. They hold names and paths.
A connection string travels in RELAY_CONNECTION_STRING, and nowhere else.

    RELAY_DEBUG_REGISTERED         set by a process that has registered: its pid and rank, for its children to see

In an OpenPAI job the names of its paipdb tool are understood where ours are absent: DEBUG_TIMEOUT is how long to wait,
and DEBUG_PORT_NAME the label of a reserved port list, whose first port in task 0 is that of rank 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from relay_agent.inject._relay_debug_programs import helper_reason, is_off, what_runs
from relay_agent.ranks.identity import SINGLE, identify
from relay_agent.settings.arguments import parse_duration
from relay_agent.settings.model import DEFAULT_HOLD, DEFAULT_PORT, DEFAULT_WAIT, DebugSettings
from relay_agent.settings.rank_selection import DEFAULT_RANKS, parse_ranks
from relay_core.errors import UsageError

__all__ = [
    "ACCESS_FIELDS",
    "HC",
    "MODE",
    "REGISTERED",
    "access_variable",
    "from_environment",
    "register_environment",
    "should_register",
]

MODE = "RELAY_DEBUG"
HC = "RELAY_DEBUG_HC"
REGISTERED = "RELAY_DEBUG_REGISTERED"

ACCESS_FIELDS = (
    "connection_string_file",
    "connection_string_secret",
    "key_vault",
    "namespace",
    "identity",
    "tunnel_key_file",
    "tunnel_key_secret",
    "ca_file",
)
"""What the credential options say besides the hybrid connection; none of it is a secret."""

MAX_TIMEOUTS = 20 * 24 * 3600.0
"""Seconds; torch hands timeouts to poll(2), which counts milliseconds in an int: it ends after 24 days."""

_YES = frozenset({"1", "true", "yes", "on"})
_LIBRARY = re.compile(r"[/\\](site|dist)-packages[/\\]")


def access_variable(field: str) -> str:
    """Return the variable of a credential option."""
    return f"RELAY_DEBUG_{field.upper()}"


def from_environment(environ: Mapping[str, str], *, options: Mapping[str, str] | None = None) -> DebugSettings | None:
    """Return the settings that this environment describes; None if nothing is to be debugged.

    Args:
        environ: As a process has it.
        options: Names for some variables in an error's sentence: the options that they come from.

    Raises:
        UsageError: a value cannot be understood.
    """
    mode = environ.get(MODE, "").strip().lower()
    if is_off(mode):
        return None
    if mode not in _YES | {"wait", "on-demand"}:
        raise UsageError(f"{MODE} '{mode}' is not a mode", hint="use off, on-demand or wait")
    read = _Reader(environ, options or {})
    access: dict[str, Any] = {field: environ.get(access_variable(field)) for field in ACCESS_FIELDS}
    access["hc"] = environ.get(HC) or environ.get("AZRELAY_CONNECTION_NAME")
    pai = _OpenPai(environ)
    ranks = read.ranks("RELAY_DEBUG_RANKS")
    return DebugSettings(
        access={field: value for field, value in access.items() if value},
        port=read.port("RELAY_DEBUG_PORT", pai.port),
        ranks="none" if mode == "on-demand" else ranks,
        wait=read.seconds("RELAY_DEBUG_WAIT", pai.wait),
        abort_on_timeout=read.choice("RELAY_DEBUG_ON_TIMEOUT", "continue", "abort"),
        on_crash=read.flag("RELAY_DEBUG_ON_CRASH"),
        hold=read.seconds("RELAY_DEBUG_HOLD", DEFAULT_HOLD),
        timeouts=min(read.seconds("RELAY_DEBUG_TIMEOUTS", 0), MAX_TIMEOUTS) or None,
        forwards=read.ports("RELAY_DEBUG_FORWARD"),
        follow_children=read.flag("RELAY_DEBUG_FOLLOW_CHILDREN"),
    )


class _Reader:
    """Reads variables of which each is optional; an empty one is absent."""

    def __init__(self, environ: Mapping[str, str], options: Mapping[str, str]) -> None:
        self._environ = environ
        self._options = options

    def _text(self, variable: str) -> str:
        return self._environ.get(variable, "").strip()

    def _name(self, variable: str) -> str:
        return self._options.get(variable, variable)

    def flag(self, variable: str) -> bool:
        """Read yes or no, as text: "false" is no."""
        text = self._text(variable).lower()
        if text not in _YES and not is_off(text):
            raise UsageError(f"{self._name(variable)} '{text}' is neither true nor false", hint="use 1 or 0")
        return text in _YES

    def choice(self, variable: str, usual: str, other: str) -> bool:
        """Read one of two words, and return whether it is the other one."""
        text = self._text(variable).lower()
        if text not in {"", usual, other}:
            raise UsageError(f"{self._name(variable)} '{text}' is neither {usual} nor {other}")
        return text == other

    def seconds(self, variable: str, default: float) -> float:
        """Read a duration."""
        text = self._text(variable)
        return parse_duration(self._name(variable), text) if text else default

    def port(self, variable: str, default: int) -> int:
        """Read one port."""
        found = self.ports(variable)
        if len(found) > 1:
            raise UsageError(f"{self._name(variable)} names {len(found)} ports", hint="it is rank 0's, and only that")
        return found[0] if found else default

    def ports(self, variable: str) -> tuple[int, ...]:
        """Read a list of ports."""
        parts = [part.strip() for part in self._text(variable).split(",") if part.strip()]
        for part in parts:
            if not _is_port(part):
                raise UsageError(
                    f"{self._name(variable)} '{part}' is not a port", hint="use a number from 1 to 65535, such as 5678"
                )
        return tuple(int(part) for part in parts)

    def ranks(self, variable: str) -> str:
        """Read the ranks that wait."""
        try:
            return str(parse_ranks(self._text(variable) or DEFAULT_RANKS))
        except UsageError as error:
            sentence = error.sentence.replace("--debug-ranks", self._name(variable))
            raise UsageError(sentence, hint=error.hint) from None


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 5 and 1 <= int(text) <= 65535


class _OpenPai:
    """What a job of OpenPAI says for its own debugger; unusable values are as good as none.

    The names are those of contrib/debug-tools in microsoft/pai.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        role = environ.get("PAI_CURRENT_TASK_ROLE_NAME", "")
        label = environ.get("DEBUG_PORT_NAME", "")
        text = environ.get(f"PAI_PORT_LIST_{role}_0_{label}", "").partition(",")[0].strip()
        wait = environ.get("DEBUG_TIMEOUT", "").strip() if role else ""
        self.port = int(text) if _is_port(text) else DEFAULT_PORT
        """Of task 0, in every task, so that rank n has n more everywhere; nobody listens on it."""
        self.wait = float(wait) if wait.isascii() and wait.isdecimal() else DEFAULT_WAIT


def should_register(environ: Mapping[str, str], orig_argv: list[str], pid: int) -> str | None:
    """Return why a process is no target of its own, or None if it is one and registers.

    What a rank starts inherits the rank's variables, and is a helper of that rank. What a registered process starts
    with a rank of its own (Lightning, a launcher written by hand) is a target. So is what a registered process turns
    into by exec: it has the same pid.

    Args:
        environ: Of the process.
        orig_argv: Its `sys.orig_argv`.
        pid: Its process id.
    """
    if is_off(environ.get(MODE, "")):
        return "debugging is off"
    if reason := helper_reason(orig_argv):
        return reason
    identity = identify(environ)
    has_rank = identity.launcher != SINGLE and not identity.node_level
    parent, _, parent_name = environ.get(REGISTERED, "").partition(" ")
    if parent and parent != str(pid) and not (has_rank and _name(environ) != parent_name):
        return f"it was started by process {parent}, which is registered for {identity.label}"
    kind, name = what_runs(orig_argv)
    if kind == "script" and not has_rank and _LIBRARY.search(name):
        return "its file belongs to a library, and no launcher gave it a rank"
    return None


def register_environment(environ: Mapping[str, str], pid: int) -> dict[str, str]:
    """Return the variable that a process sets as it registers."""
    return {REGISTERED: f"{pid} {_name(environ)}"}


def _name(environ: Mapping[str, str]) -> str:
    """Return what tells ranks apart, and one rank's restarts."""
    identity = identify(environ)
    return f"{identity.launcher}, {identity.label}, restart {identity.restart} of {identity.run_id}"
