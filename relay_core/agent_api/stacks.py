"""The stacks of processes, as in the response to the request `stacks`.

The classes are named tuples because jobs use them too, and importing `dataclasses` would cost a job 10 ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from relay_core.agent_api.values import Clean, as_is, count, mapping, objects, text

__all__ = ["Frame", "NodeStacks", "ProcessStacks", "ThreadStack", "is_library"]

_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3.", "/lib64/python3.")
"""Parts of the paths of installed code; every other file is the user's."""


def is_library(file: str) -> bool:
    """Return whether a file name refers to installed code, or to no file."""
    return file.startswith("<") or any(part in file for part in _LIBRARIES)


_NO_LOCALS: Mapping[str, str] = MappingProxyType({})


class Frame(NamedTuple):
    """One stack frame."""

    file: str
    line: int
    """0 if unknown."""
    function: str
    locals: Mapping[str, str] = _NO_LOCALS
    """Abbreviated values of the variables, by name, if they were requested."""

    def encode(self) -> dict[str, object]:
        """Return one element of `frames`."""
        found: dict[str, object] = {"file": self.file, "line": self.line, "function": self.function}
        return found | {"locals": dict(self.locals)} if self.locals else found

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> Frame:
        """Read one element of `frames`."""
        fields = mapping(value)
        values = mapping(fields.get("locals"))
        return cls(
            text(fields.get("file"), clean),
            count(fields.get("line")) or 0,
            text(fields.get("function"), clean),
            {clean(str(name)): text(one, clean) for name, one in values.items()} or _NO_LOCALS,
        )


class ThreadStack(NamedTuple):
    """One thread and its frames."""

    name: str
    ident: int
    """The thread's `threading.get_ident()`."""
    main: bool
    frames: tuple[Frame, ...]
    """Innermost frame last."""

    def encode(self) -> dict[str, object]:
        """Return one element of `threads`."""
        frames = [frame.encode() for frame in self.frames]
        return {"name": self.name, "ident": self.ident, "main": self.main, "frames": frames}

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> ThreadStack:
        """Read one element of `threads`."""
        fields = mapping(value)
        return cls(
            text(fields.get("name"), clean),
            count(fields.get("ident")) or 0,
            fields.get("main") is True,
            tuple(Frame.parse(frame, clean) for frame in objects(fields.get("frames"))),
        )


class ProcessStacks(NamedTuple):
    """One process and its threads."""

    port: int | None = None
    """The logical port of the process."""
    rank: int | None = None
    pid: int | None = None
    how: str = "none"
    """The method that succeeded: "helper thread", "faulthandler" or "py-spy"; "none" if all failed."""
    threads: tuple[ThreadStack, ...] = ()
    """Main thread first."""
    error: str = ""
    """Why every method failed, in one sentence."""

    def encode(self) -> dict[str, object]:
        """Return one element of `processes`."""
        threads = [thread.encode() for thread in self.threads]
        found: dict[str, object] = {"port": self.port, "rank": self.rank, "pid": self.pid, "how": self.how}
        found["threads"] = threads
        return found | {"error": self.error} if self.error else found

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> ProcessStacks:
        """Read one element of `processes`."""
        fields = mapping(value)
        return cls(
            port=count(fields.get("port")),
            rank=count(fields.get("rank")),
            pid=count(fields.get("pid")),
            how=text(fields.get("how"), clean) or "none",
            threads=tuple(ThreadStack.parse(thread, clean) for thread in objects(fields.get("threads"))),
            error=text(fields.get("error"), clean),
        )


class NodeStacks(NamedTuple):
    """All processes on a node: the response to `stacks`."""

    processes: tuple[ProcessStacks, ...] = ()

    def encode(self) -> dict[str, object]:
        """Return the response."""
        return {"processes": [process.encode() for process in self.processes]}

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> NodeStacks:
        """Read the response."""
        found = objects(mapping(value).get("processes"))
        return cls(tuple(ProcessStacks.parse(process, clean) for process in found))
