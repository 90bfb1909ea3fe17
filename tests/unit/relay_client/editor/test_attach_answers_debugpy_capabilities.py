"""Facts about debugpy's response to `initialize`."""

from pathlib import Path

from relay_client.dap import DapClient
from relay_client.editor.attach_answers import DEBUGPY_CAPABILITIES
from relay_client.prefetch import DELAYED_STACKS
from tests.support.debuggers.debuggee import debuggee
from tests.support.machine.deadline import DEADLINE


async def test_real_debugger(tmp_path: Path) -> None:
    """The known body is that of the installed debugpy, without the capability that prefetch removes."""
    async with (
        debuggee(tmp_path) as (_, port, _script),
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client,
    ):
        body = await client.request("initialize", {"clientID": "vscode", "adapterID": "debugpy"}, within=DEADLINE)
    assert {**DEBUGPY_CAPABILITIES, DELAYED_STACKS: True} == body
