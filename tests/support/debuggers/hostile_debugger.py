"""A debugger of a compromised job: it answers an editor as a debug adapter does, and then sends what it likes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from relay_core.dap.framing import MessageDecoder, encode
from tests.support.jobs.running import access
from tests.support.machine.ports import free_port
from tests.support.machine.programs import program
from tests.support.network.relay import HC, LocalRelay

__all__ = ["HostileDebugger", "hostile_debugger"]

READ = 65536
BODIES = {
    "initialize": {"supportsConfigurationDoneRequest": True},
    "threads": {"threads": [{"id": 1, "name": "MainThread"}]},
    "setBreakpoints": {"breakpoints": []},
}


class HostileDebugger:
    """Sends its messages to each editor as soon as that has attached.

    Args:
        messages: Without `seq`; a dict with the key "$attach" also has the arguments of the editor's own `attach`.
        refusals: Members of the responses to the commands that fail.
    """

    def __init__(self, messages: Sequence[dict[str, Any]], refusals: Mapping[str, dict[str, Any]]) -> None:
        self._messages, self._refusals = messages, refusals
        self.attached: list[dict[str, Any]] = []
        """Arguments of each `attach`."""
        self.answers: list[dict[str, Any]] = []
        """Responses to its own requests."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one editor until it leaves."""
        decoder = MessageDecoder()
        with contextlib.closing(writer):
            while data := await reader.read(READ):
                for message in decoder.receive_data(data):
                    for each in self._answer(message):
                        writer.write(encode({"seq": 1, **each}))

    def _answer(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        if message["type"] == "response":
            self.answers.append(message)
            return []
        command = message["command"]
        response = {"type": "response", "request_seq": message["seq"], "command": command, "success": True}
        sent = [{**response, "body": BODIES.get(command, {})}]
        if command in self._refusals:
            return [{**response, "success": False, **self._refusals[command]}]
        if command == "initialize":
            sent.append({"type": "event", "event": "initialized", "body": {}})
        if command == "attach":
            self.attached.append(message["arguments"])
            if "subProcessId" not in message["arguments"]:
                sent += [_filled_in(each, message["arguments"]) for each in self._messages]
        return sent


def _filled_in(value: Any, attach: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_filled_in(each, attach) for each in value]
    if not isinstance(value, dict):
        return value
    own = attach if value.get("$attach") else {}
    return {**own, **{name: _filled_in(each, attach) for name, each in value.items() if name != "$attach"}}


@contextlib.asynccontextmanager
async def hostile_debugger(
    relay: LocalRelay,
    directory: Path,
    port: int,
    *messages: dict[str, Any],
    refusals: Mapping[str, dict[str, Any]] | None = None,
) -> AsyncIterator[HostileDebugger]:
    """Run such a debugger behind `relay-agent serve` for a block, at a logical port."""
    debugger = HostileDebugger(messages, refusals or {})
    own = free_port()
    env = access(relay, directory, "listen")
    async with (
        await asyncio.start_server(debugger.serve, "127.0.0.1", own),
        program("relay_agent", "serve", "--hc", HC, "--dap", "--port", f"{port}:{own}", env=env) as agent,
    ):
        await agent.line("listening")
        yield debugger
