"""The debug configurations that an editor gets, one per rank, and those that the user pastes into other editors."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from relay_core.agent_api.announcement import TargetInfo
from relay_core.errors import UsageError
from relay_core.value_parsers import MAX_PORT

# The debug configurations that an editor gets: one per rank, each with a local port.
#
# --ports 5678-5680                    ranks 0-2 on these ports
# --ranks 4-5                          ranks 4 and 5 on 5682 and 5683: 5678 plus the rank
# --ranks 4-5 --ports 7004,7005        ranks 4 and 5 on these ports
# --from-targets                       the processes that are registered now
# --all-ranks 5600                     an additional configuration for the debug session of all ranks, on this port

ALL_RANKS = "all ranks"
"""Label of the entry for the debug session of all ranks."""
DEFAULT_PORT = 5678
"""The port of rank 0 unless the job sets another `--debug-port`."""
PREFIX = "Relay: "
"""Prefix of the names of all entries."""


class Entry(NamedTuple):
    """One debug configuration."""

    label: str
    """`rank 3`, or `port 5678` for a process without a rank."""
    port: int

    @property
    def is_job(self) -> bool:
        """True for the debug session of all ranks."""
        return self.label == ALL_RANKS

    @property
    def name(self) -> str:
        """The name that the editor shows."""
        return f"{PREFIX}{self.label}"


def entries_for(ports: Sequence[int] | None, ranks: Sequence[int] | None) -> list[Entry]:
    """Return the entries for the ports and ranks on a command line.

    Args:
        ports: Value of `--ports`, or None.
        ranks: Value of `--ranks`, or None.

    Raises:
        UsageError: the number of ranks differs from the number of ports, or a rank is too large for a port.
    """
    ranks = ranks if ranks is not None else range(len(ports or [DEFAULT_PORT]))
    if ports is None:
        ports = [DEFAULT_PORT + rank for rank in ranks]
    if len(ports) != len(ranks):
        raise UsageError(
            f"--ranks has {len(ranks)} ranks, but --ports has {len(ports)} ports",
            hint=f"give one port for each rank, or omit --ports: rank n then has port {DEFAULT_PORT} plus n",
        )
    if max(ports) > MAX_PORT:
        raise UsageError(
            f"rank {max(ranks)} would have port {max(ports)}, but the highest port is 65535",
            hint="specify the port of that rank with --ports",
        )
    return [Entry(f"rank {rank}", port) for rank, port in zip(ranks, ports, strict=True)]


def entries_of(targets: Iterable[TargetInfo], ranks: Collection[int] | None) -> list[Entry]:
    """Return the entries of registered processes, by rank; processes without a rank come last.

    Args:
        targets: The processes.
        ranks: The ranks to include; None for all processes, with or without a rank.

    Raises:
        UsageError: no process matches.
    """
    found = {target.port: target for target in targets if ranks is None or target.rank in ranks}
    if not found:
        raise UsageError(
            "no process is registered" + (" with these ranks" if ranks is not None else ""),
            hint="run 'relay-client targets' to see what is registered, or give --ports instead of --from-targets",
        )
    labels = Counter(target.label for target in found.values())
    ordered = sorted(found.values(), key=lambda target: (target.rank is None, target.rank or 0, target.port))
    return [
        Entry(target.label if labels[target.label] == 1 else f"{target.label} ({target.port})", target.port)
        for target in ordered
    ]


# Configurations for the user to paste, for editors whose configuration files are programs or are undocumented.
#
# No configuration sets `subProcess`: child processes are offered only to editors that can follow them or that set this.

HOST = "127.0.0.1"


def nvim(entries: Sequence[Entry], _folder: str) -> str:
    """Return Lua for nvim-dap."""
    lines = [
        "-- Neovim with nvim-dap: put this in init.lua.",
        "local dap = require('dap')",
        "dap.adapters.debugpy = function(callback, config)",
        "  callback({ type = 'server', host = config.connect.host, port = config.connect.port })",
        "end",
        "dap.configurations.python = dap.configurations.python or {}",
        "for _, target in ipairs({",
        *(f"  {{ name = {_quoted(entry.name)}, port = {entry.port} }}," for entry in entries),
        "}) do",
        "  table.insert(dap.configurations.python, {",
        "    type = 'debugpy', request = 'attach', name = target.name,",
        f"    connect = {{ host = '{HOST}', port = target.port }},",
        "    pathMappings = { { localRoot = vim.fn.getcwd(), remoteRoot = '.' } },",
        "    justMyCode = false,",
        "  })",
        "end",
    ]
    return "\n".join(lines)


def pycharm(entries: Sequence[Entry], folder: str) -> str:
    """Return what to enter in PyCharm's dialogue."""
    rows = [f"    {entry.name:<24} {HOST}:{entry.port}" for entry in entries]
    lines = [
        "PyCharm 2025.3 or later: Run > Edit Configurations > + > Attach to DAP, one configuration for each of these:",
        "",
        f"    {'Name':<24} Remote address",
        *rows,
        "",
        f"    Local project path:   {folder}",
        "    Remote project path:  . (the job's working directory)",
    ]
    return "\n".join(lines)


def zed(entries: Sequence[Entry], _folder: str) -> str:
    """Return the complete contents of Zed's debug.json."""
    scenarios = [
        {
            "label": entry.name,
            "adapter": "Debugpy",
            "request": "attach",
            "connect": {"host": HOST, "port": entry.port},
            "pathMappings": [{"localRoot": "$ZED_WORKTREE_ROOT", "remoteRoot": "."}],
            "justMyCode": False,
        }
        for entry in entries
    ]
    return "// .zed/debug.json\n" + json.dumps(scenarios, indent=2)


def emacs(entries: Sequence[Entry], folder: str) -> str:
    """Return Emacs Lisp for dape."""
    configs = "\n".join(_dape_config(entry, folder) for entry in entries)
    return f";; Emacs with dape: put this in your init file.\n(with-eval-after-load 'dape\n{configs})"


def _dape_config(entry: Entry, folder: str) -> str:
    symbol = "relay-" + re.sub(r"\W+", "-", entry.label, flags=re.ASCII).strip("-")
    return f"""\
  (add-to-list 'dape-configs
    '({symbol} modes (python-mode python-ts-mode) host "{HOST}" port {entry.port}
      :type "python" :request "attach" :connect (:host "{HOST}" :port {entry.port})
      :justMyCode :json-false
      :pathMappings [(:localRoot {_quoted(folder)} :remoteRoot ".")]))"""


def _quoted(text: str) -> str:
    """Return a string literal that is valid both in Lua and in Emacs Lisp."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


SNIPPETS: Mapping[str, Callable[[Sequence[Entry], str], str]] = {
    "nvim": nvim,
    "pycharm": pycharm,
    "zed": zed,
    "emacs": emacs,
}
"""For each editor name, a function that returns the configuration for entries and the absolute path of a folder."""
