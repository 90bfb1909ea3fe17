"""How an editor attaches: path mappings, child processes, the current holder, and breakpoints that were not set."""

from __future__ import annotations

from collections.abc import Callable

from relay_client.editor.breakpoints import UnsetBreakpoints
from relay_client.editor.job import JobView
from relay_client.editor.mappings import FindRoot, map_paths, remote_path
from relay_core.dap.messages import Arguments, Request, Response
from relay_core.dap.prefetch import arguments_of

__all__ = ["Attaching", "OnSource"]

FOLLOWS_CHILDREN = "supportsStartDebuggingRequest"
"""The capability of an editor that opens a session for each child process that the debugger offers."""
OnSource = Callable[[str, str], None]
"""Called with a file of the laptop, and the file of the node that it is mapped to."""
HELD = "already being debugged"
"""Part of debugpy's error message if another debugger is attached."""


class Attaching:
    """The `attach` and the breakpoints of one editor.

    Args:
        find_root: Finds the job's script on this machine.
        on_source: Called once with each file that has breakpoints.
    """

    def __init__(
        self, find_root: FindRoot, on_source: Callable[[str, str], None] = lambda _local, _remote: None
    ) -> None:
        self._find_root = find_root
        self._on_source = on_source
        self._sources: set[str] = set()
        """Files for which the editor has set breakpoints."""
        self._request: Request | None = None
        """The arguments of `attach` as sent to the debugger."""
        self._breakpoints = UnsetBreakpoints()

    def __repr__(self) -> str:
        return f"<Attaching {'child' if self.is_child else 'process'}>"

    @property
    def is_child(self) -> bool:
        """True if the debugger is that of a child process. The agent does not announce the exit of a child process."""
        return self._request is not None and "subProcessId" in arguments_of(self._request)

    def requested(self, request: Request, initialize: Arguments, view: JobView) -> tuple[Request, str]:
        """Return the `attach` to send to the debugger, and a line for the editor or ""."""
        arguments, line = map_paths(arguments_of(request), view, self._find_root)
        if "subProcess" not in arguments and initialize.get(FOLLOWS_CHILDREN) is True:
            arguments = {**arguments, "subProcess": True}
        changed = arguments != arguments_of(request)
        self._request = {**request, "arguments": arguments} if changed else request
        return self._request, line

    def breakpoints_requested(self, request: Request, view: JobView) -> None:
        """Record a `setBreakpoints` request."""
        path = self._breakpoints.requested(request)
        if not path or path in self._sources or self._request is None:
            return
        self._sources.add(path)
        if remote := remote_path(path, arguments_of(self._request), view.cwd):
            self._on_source(path, remote)

    def refusal(self, response: Response, view: JobView) -> tuple[Request, str] | None:
        """Return the reason and the `attach` if a response rejects it because of another debugger; otherwise None."""
        request = self._request
        if request is None or response["request_seq"] != request["seq"] or response.get("success") is not False:
            return None
        if HELD not in response.get("message", ""):
            return None
        return request, f"{view.name} is {view.holder or 'held by another debugger'}"

    def line_about(self, response: Response, view: JobView) -> str:
        """Return a line about breakpoints that were not set, or ""."""
        return self._breakpoints.answered(response, view)
