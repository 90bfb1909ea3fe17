"""Breakpoints that the debugger could not set: one line for each file, with the necessary change to launch.json."""

from __future__ import annotations

import ntpath
import posixpath
from collections.abc import Mapping

from relay_client.editor.job_view import JobView
from relay_client.editor.mappings import mapping_text
from relay_core.dap.messages import Request, Response, arguments_of

__all__ = ["UnsetBreakpoints"]

MISSING = "does not exist"
"""Part of debugpy's message about a file that it cannot find on the node."""
EXCLUDED = "excluded by filters"
"""Part of debugpy's message about code that `justMyCode` excludes."""


class UnsetBreakpoints:
    """The breakpoints of one editor's session."""

    def __init__(self) -> None:
        self._files: dict[int, str] = {}
        """The file of each unanswered `setBreakpoints` request, by request number."""
        self._shown: set[str] = set()

    def __repr__(self) -> str:
        return f"<UnsetBreakpoints pending={len(self._files)} shown={len(self._shown)}>"

    def requested(self, request: Request) -> str:
        """Record a `setBreakpoints` request and return its file; "" if it sets no breakpoints."""
        arguments = arguments_of(request)
        source = arguments.get("source")
        path = source.get("path") if isinstance(source, Mapping) else None
        if not isinstance(path, str) or not arguments.get("breakpoints"):
            return ""
        self._files[request["seq"]] = path
        return path

    def answered(self, response: Response, view: JobView, mapped: Mapping[str, str]) -> str:
        """Return a line about those breakpoints in a file that were not set, once for each file; otherwise "".

        Args:
            response: The response to `setBreakpoints`.
            view: What is known about the job.
            mapped: The file on the node to which each local file is mapped, as `remote_path` returns it.
        """
        path = self._files.pop(response["request_seq"], None)
        if path is None or path in self._shown:
            return ""
        found = (response.get("body") or {}).get("breakpoints")
        messages = [_message(each) for each in found] if isinstance(found, list) else []
        line = next((line for message in messages if (line := _line(message, path, mapped.get(path, ""), view))), "")
        if line:
            self._shown.add(path)
        return line


def _message(breakpoint_: object) -> str:
    if not isinstance(breakpoint_, Mapping) or breakpoint_.get("verified") is not False:
        return ""
    message = breakpoint_.get("message")
    return message if isinstance(message, str) else ""


def _line(message: str, path: str, remote: str, view: JobView) -> str:
    folder, name = ntpath.split(path) if "\\" in path else posixpath.split(path)
    begin = f"breakpoints in {name} are not set"  # a notification shows only the first words of a line
    if EXCLUDED in message:
        return f'{begin}: {path} is excluded by justMyCode. hint: set "justMyCode": false'
    if MISSING not in message:
        return ""
    # Without a mapping, the debugger looks for the file at its path on the laptop.
    # debugpy reports no more than that: the file may exist, but not for the user or in the container of the job.
    place = posixpath.join(view.cwd, remote) if remote else path
    begin += f": debugpy on {view.host or 'the node'} does not find {place}"
    if not view.cwd:
        return f"{begin}. hint: check pathMappings in launch.json"
    begin += f". The job was started in {view.cwd}. hint: "
    if name == view.script:
        return f"{begin}in launch.json, set {mapping_text(folder, '.')}"
    if remote and not posixpath.isabs(remote):  # inside the job's directory: a different remoteRoot would not help
        return f"{begin}check that the job's code contains this file, and check localRoot in launch.json"
    return f"{begin}in launch.json, set {mapping_text('${workspaceFolder}', '.')}"
