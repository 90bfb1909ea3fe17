"""How an editor attaches: path mappings, children, who holds the job, unset breakpoints, and files that differ."""

from __future__ import annotations

import json
import ntpath
import posixpath
import re
from collections.abc import Callable

from relay_client.editor.messages import CANNOT_FOLLOW, CONSOLE, IMPORTANT, NOT_FOLLOWED, JobView
from relay_client.editor.notices import Outbox
from relay_core.dap.messages import Arguments, Request, Response, arguments_of
from relay_core.json_values import items, mapping, text

# The `pathMappings` of an editor's `attach`: which directories on the laptop and on the node correspond.
#
#     missing                   set, if the job's script is in the editor's folder, or in the current directory
#     a relative `remoteRoot`   becomes absolute: it is relative to the directory in which the job was started, but
#                               debugpy would use the job's current directory
#     any other mapping         passes unchanged

FindRoot = Callable[[str, str], str]
"""Returns the local directory that contains a script, given the editor's folder and the script's name; "" if not
found."""
_ABSOLUTE = re.compile(r"/|~|\\\\|[A-Za-z]:[\\/]")
"""Matches the start of an absolute path on any system."""


def map_paths(arguments: Arguments, view: JobView, find_root: FindRoot) -> tuple[Arguments, str]:
    """Return the arguments of `attach` with mappings that fit the job, and a line that explains them to the user."""
    if not view.cwd:
        return arguments, ""
    if mappings := items(arguments.get("pathMappings")):
        return {**arguments, "pathMappings": [_absolute(each, view.cwd) for each in mappings]}, ""
    if arguments.get("localRoot") and arguments.get("remoteRoot"):
        return _absolute(arguments, view.cwd), ""
    local = find_root(text(arguments.get("workspaceFolder")), view.script)
    if not local or local == view.cwd:
        return arguments, ""
    line = (
        f"the attach configuration has no pathMappings: {local} is mapped to {view.cwd} on {view.host}, where the job "
        f"was started. hint: to configure this, add {mapping_text(local)}"
    )
    return {**arguments, "pathMappings": [{"localRoot": local, "remoteRoot": view.cwd}]}, line


def mapping_text(local: str) -> str:
    """Return the line for launch.json that maps a local directory to the one in which the job was started."""
    return f'"pathMappings": {json.dumps([{"localRoot": local, "remoteRoot": "."}], ensure_ascii=False)}'


def remote_path(local: str, arguments: Arguments, cwd: str) -> str:
    """Return the file on the node to which a local file is mapped, relative to `cwd` if inside it; "" if unmapped.

    Args:
        local: A file on the laptop.
        arguments: The arguments of `attach`, with absolute directories.
        cwd: The directory in which the job was started.
    """
    path = local.replace("\\", "/")
    for each in items(arguments.get("pathMappings")):
        match each:
            case {"localRoot": str(local_root), "remoteRoot": str(remote_root)}:
                root = local_root.replace("\\", "/").rstrip("/") + "/"
                if path.startswith(root):
                    remote = posixpath.join(remote_root, path[len(root) :])
                    return remote.removeprefix(cwd.rstrip("/") + "/") if cwd else remote
    return ""


def _absolute(found: object, cwd: str) -> dict[str, object]:
    """Return a mapping with an absolute `remoteRoot`."""
    fields = dict(mapping(found))
    remote = fields.get("remoteRoot")
    if isinstance(remote, str) and remote and not _ABSOLUTE.match(remote):
        fields["remoteRoot"] = posixpath.normpath(posixpath.join(cwd, remote))
    return fields


# Breakpoints that the debugger could not set: one line for each file, with the necessary change to launch.json.

MISSING = "does not exist"
"""Part of debugpy's message about a file that it cannot find on the node."""
EXCLUDED = "excluded by filters"
"""Part of debugpy's message about code that `justMyCode` excludes."""


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
        return f"{begin}in launch.json, set {mapping_text(folder)}"
    if remote and not posixpath.isabs(remote):  # inside the job's directory: a different remoteRoot would not help
        return f"{begin}check that the job's code contains this file, and check localRoot in launch.json"
    return f"{begin}in launch.json, set {mapping_text('${workspaceFolder}')}"


# The `attach` request, and the files in which the editor has set breakpoints.

FOLLOWS_CHILDREN = "supportsStartDebuggingRequest"
"""The capability of an editor that opens a session for each child process that the debugger offers."""
OnSource = Callable[[str, str], None]
"""Called with a file on the laptop, and the file on the node to which it is mapped."""
HELD = "already being debugged"
"""Part of debugpy's message if another debugger is attached."""


class Attaching:
    """The `attach` and the breakpoints of one editor.

    Args:
        outbox: The messages for the editor.
        find_root: Returns the local directory that contains the job's script.
        on_source: Called with each file that has breakpoints, and again after the job's code has been replaced.
    """

    def __init__(self, outbox: Outbox, find_root: FindRoot, on_source: OnSource) -> None:
        self._outbox = outbox
        self._find_root = find_root
        self._on_source = on_source
        self._sources: dict[str, str] = {}
        """The mapped files in which the editor has set breakpoints, each with the file on the node."""
        self._different: set[str] = set()
        """Paths of the local files that differ from the files on the node."""
        self._request: Request | None = None
        """The `attach` request as sent to the debugger."""
        self.sent: Arguments | None = None
        """The arguments of `attach` as the editor has sent them."""
        self._files: dict[int, str] = {}
        """The file of each unanswered `setBreakpoints` request, by request number."""
        self._unset: set[str] = set()
        """Files about whose breakpoints that are not set there has been a line."""
        self._has_different = False
        """True if the user has been notified of a differing file; one notification is enough."""

    @property
    def is_child(self) -> bool:
        """True if the debugger belongs to a child process; an agent does not announce how a child process ends."""
        return self._request is not None and "subProcessId" in arguments_of(self._request)

    def requested(self, request: Request, initialize: Arguments, view: JobView) -> Request:
        """Return the `attach` to send to the debugger; show added mappings, and that children cannot be followed."""
        self.sent = arguments_of(request)
        arguments, line = map_paths(self.sent, view, self._find_root)
        if line:
            self._outbox.show(line)
        can_follow = initialize.get(FOLLOWS_CHILDREN) is True
        if can_follow:
            arguments = {"subProcess": True, **arguments}
        elif arguments.get("subProcess") is not False and "subProcessId" not in arguments:
            self._outbox.show(CANNOT_FOLLOW if arguments.get("subProcess") is True else NOT_FOLLOWED)
        changed = arguments != arguments_of(request)
        self._request = {**request, "arguments": arguments} if changed else request
        return self._request

    def breakpoints_requested(self, request: Request, view: JobView) -> None:
        """Record a `setBreakpoints` request, and have its file compared with the job's if that is new."""
        arguments = arguments_of(request)
        path = mapping(arguments.get("source")).get("path")
        if not isinstance(path, str) or not arguments.get("breakpoints"):
            return
        self._files[request["seq"]] = path
        if path in self._sources or self._request is None:
            return
        if remote := remote_path(path, arguments_of(self._request), view.cwd):
            self._sources[path] = remote
            self._on_source(path, remote)

    def compare_again(self) -> None:
        """Have all files compared again, because the job's code has been replaced."""
        for source in self._sources.items():
            self._on_source(*source)

    def source_compared(self, path: str, view: JobView, *, is_different: bool) -> None:
        """Show that a file differs from the job's file, or no longer differs from it."""
        name, node = ntpath.basename(path), f" on {view.host}" if view.host else ""
        if is_different and path not in self._different:
            self._different.add(path)
            line = f"{name} differs from the job's file{node}: breakpoints and steps may be shown on the wrong lines"
            self._outbox.show(f"{line} ({path})", CONSOLE if self._has_different else IMPORTANT)
            self._has_different = True
        elif not is_different and path in self._different:
            self._different.remove(path)
            self._outbox.show(f"after a push, {name} matches the code that the job{node} is executing ({path})")

    def responded(self, response: Response, view: JobView) -> bool:
        """Show what a response from the debugger means; return True if the editor receives a different response."""
        request = self._request
        is_attach = request is not None and response["request_seq"] == request["seq"]
        if request is not None and is_attach and _is_refusal(response):
            self._outbox.fail(request, f"{view.name} is {view.holder or 'held by another debugger'}")
            return True
        if is_attach and response.get("success") is True and view.replaced and not self.is_child:
            self._outbox.show(view.replaced)
        self._show_unset(response, view)
        return False

    def _show_unset(self, response: Response, view: JobView) -> None:
        """Show a line about those breakpoints in a file that were not set, once for each file."""
        path = self._files.pop(response["request_seq"], None)
        if path is None or path in self._unset:
            return
        for each in items(mapping(response.get("body")).get("breakpoints")):
            match each:
                case {"verified": False, "message": str(message)}:
                    if line := _line(message, path, self._sources.get(path, ""), view):
                        self._unset.add(path)
                        self._outbox.show(line, IMPORTANT)
                        return


def _is_refusal(response: Response) -> bool:
    """True if the debugger has refused the `attach` because another debugger is attached."""
    return response.get("success") is False and HELD in str(response.get("message"))
