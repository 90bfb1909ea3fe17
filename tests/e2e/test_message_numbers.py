"""The fact about the numbers of the messages that an editor receives."""

from pathlib import Path

import pytest

from relay_core.dap.framing import MessageDecoder
from tests.support.debuggers.debuggee import PROGRAM, stopped_at_breakpoint
from tests.support.jobs.running import running_client, running_job
from tests.support.machine.ports import free_port
from tests.support.network.relay import LocalRelay

pytestmark = pytest.mark.e2e


async def test_they_do_not_go_backwards(relay: LocalRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not, though relay-client adds lines, responses that it knows, and prefetched ones."""
    received: list[tuple[int, str]] = []
    receive_data = MessageDecoder.receive_data

    def recorded(self: MessageDecoder, data: bytes) -> list:
        messages = list(receive_data(self, data))
        received.extend((message["seq"], message.get("event") or message.get("command")) for message in messages)
        return messages

    script, port = tmp_path / "counting.py", free_port()
    script.write_text(PROGRAM)
    async with running_client(relay, tmp_path, "--ports", str(port)):
        monkeypatch.setattr(MessageDecoder, "receive_data", recorded)
        async with running_job(relay, script, "--port", str(port)), stopped_at_breakpoint(port, script) as session:
            await session.step()
            await session.step()
            await session.value("number")
    numbers = [number for number, _ in received]
    assert numbers[0] == 1
    assert sorted(numbers) == numbers, received
    assert {"output", "initialized", "stopped", "next"} < {name for _, name in received}
