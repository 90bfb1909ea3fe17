"""Configurations for the user to paste, for editors whose configuration files are programs or are undocumented.

No configuration sets `subProcess`: child processes are offered only to editors that can follow them or that set this.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence

from relay_client.editor_setup.entries import Entry

__all__ = ["SNIPPETS"]

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
