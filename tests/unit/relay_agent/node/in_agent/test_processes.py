"""Facts about the table of registered processes."""

import json
from typing import Any

import pytest

from relay_agent.node.in_agent.processes import ProcessTable
from relay_agent.node.in_agent.registered_process import RegisteredProcess
from tests.support.jobs.node_process import connection


@pytest.mark.parametrize("port", [0, -1, "x", 65536, True, None])
async def test_an_invalid_port_is_refused(port: Any) -> None:
    """Such a port could not be announced; the process gets one sentence, and the table stays empty."""
    table = ProcessTable()
    async with connection() as (writer, far):
        assert not table.admit(RegisteredProcess(writer, 1, {"register": {"port": port}}))
        assert {
            "refused": f"invalid port: {port!r}",
            "hint": "use a --debug-port from 1 to 65535",
        } == json.loads(far.recv(4096))
    assert (0, False) == (len(table.targets()), table.access.done())


async def test_the_first_settings_count() -> None:
    """The agent has the access of its first process, and its monitor the settings of the first one that requests it.

    A process that requests others is informed.
    """
    table = ProcessTable()
    async with connection() as (writer, far):
        for port, monitor in enumerate([None, 5.0, 5.0, 10.0], 5678):
            registration = {"register": {"port": port}, "access": {"hc": f"hc-{port}"}, "monitor": monitor}
            assert table.admit(RegisteredProcess(writer, port, registration))
        messages = [json.loads(line) for line in far.recv(65536).splitlines()]
        assert ["registered", "registered", "registered", "notice", "registered"] == [next(iter(m)) for m in messages]
    assert ({"hc": "hc-5678"}, 5.0) == (await table.access, (await table.monitor).interval)
