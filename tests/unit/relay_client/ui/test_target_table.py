"""Facts about the output of `relay-client targets`."""

from dataclasses import replace

import pytest
from rich.console import Console

from relay_client.ranks.record import Node, node_record, target_record
from relay_client.ranks.view import Kind
from relay_client.ui.target_table import Row, most_important, plain_table, rich_table, rows, summary
from relay_core.agent_api.announcement import AgentInfo, Attachment, State, TargetInfo
from relay_core.agent_api.usage import GpuShare, GpuUsage, NodeUsage, ProcessUsage

NOW = 1000.0
NODE = AgentInfo(
    "1a2b3c4d-5e6f",
    host="node-1",
    node_rank=1,
    run="r1",
    targets=(
        TargetInfo(
            *(5681, 3, 4, 45, "train.py"), state=State.RUNNING, since=900.0, attachment=Attachment("bob@laptop", 750.0)
        ),
        TargetInfo(5680, 2, 4, 44, "train.py", state=State.CRASHED, detail="ValueError: no", since=400.0),
    ),
    forwards=(6006,),
)
SERVE = AgentInfo("9f8e7d6c", host="box", targets=(TargetInfo(5999),))
EMPTY = AgentInfo("5a5a5a5a", host="spare", forwards=(6006,))
GPU = GpuUsage("H100", 0.871, 31 * 2**30, 80 * 2**30)
SHARED = ProcessUsage(5680, 1.234, int(3.1 * 2**30), gpus=(GpuShare(0, 2**35),))
MONITORED = replace(NODE, usage=NodeUsage(990.0, 7.0, 8, 2**34, 2**36, (GPU,), (SHARED,)))


def nodes_of(*agents: AgentInfo) -> list[Node]:
    return [node_record(agent, map(target_record, agent.targets)) for agent in agents]


def test_one_row_for_each_target() -> None:
    """Rows are in the order of the ports, and show how long the state has lasted."""
    assert [
        ("1 node-1", "2", "5680", "44", "train.py", "crashed: ValueError: no", "10 min", "", "", "", "", ""),
        ("1 node-1", "3", "5681", "45", "train.py", "running", "1 min", "", "", "", "", "bob@laptop, 4 min"),
        ("box", "", "5999", "", "", "", "", "", "", "", "", ""),
        ("spare", "", "", "", "", "forwards 6006", "", "", "", "", "", ""),
    ] == [row.cells for row in rows(nodes_of(NODE, SERVE, EMPTY), NOW)]


def test_a_long_exception_is_shortened() -> None:
    """The text of an exception does not make the column of the states wider than 80 characters."""
    detail = f"RuntimeError: {'gloo ' * 40}"
    (row,) = rows(nodes_of(replace(NODE, targets=(replace(NODE.targets[1], detail=detail),))), NOW)
    assert (f"crashed: {detail}"[:77] + "...") in row.cells


def test_a_target_whose_port_leads_elsewhere() -> None:
    """Of two targets with the same port, the one to which the port does not lead is shown as unreachable."""
    owners = {5680: "box pid 7"}
    targets = [target_record(found, port_owner=owners.get(found.port, "")) for found in NODE.targets]
    first, second = rows([node_record(NODE, targets)], NOW)
    assert "unreachable: port 5680 leads to box pid 7" in first.cells
    assert "running" in second.cells


def test_the_plain_table_is_aligned() -> None:
    """Each column begins where its heading does."""
    heading, first, *_ = plain_table(rows(nodes_of(NODE, SERVE), NOW)).splitlines()
    assert heading.index("port") == first.index("5680")
    assert heading.index("state") == first.index("crashed")


def drawn(agents: list[AgentInfo], width: int) -> list[str]:
    """Return the lines of the table on a terminal of this width."""
    console = Console(width=width)
    with console.capture() as captured:
        console.print(rich_table(rows(nodes_of(*agents), NOW), width))
    return captured.get().splitlines()


@pytest.mark.parametrize("node", [NODE, MONITORED])
def test_one_line_for_each_target_at_any_width(node: AgentInfo) -> None:
    """A narrow terminal shows fewer columns and shorter cells, but neither more lines nor longer ones."""
    for width in [10, 30, *range(40, 201)]:
        lines = drawn([node, SERVE], width)
        assert (width, 4) == (width, len(lines))
        assert max(map(len, lines)) <= width


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (120, "node rank port pid script state since cpu mem gpu node gpu held by"),
        (105, "node rank port pid script state since cpu mem held by"),
        (90, "node rank port pid script state since held by"),
        (80, "node rank port state since held by"),
    ],
)
def test_the_columns_of_the_monitor_are_omitted_first(width: int, columns: str) -> None:
    """A narrow terminal shows the process, its script and its state rather than what it uses."""
    assert columns.split() == drawn([MONITORED, SERVE], width)[0].split()


def test_the_numbers_of_the_monitor() -> None:
    """The numbers of a rank are in its row, that of the node's GPUs in all of its rows; others remain empty."""
    heading, first, second, other = plain_table(rows(nodes_of(MONITORED, SERVE), NOW)).splitlines()
    start, end = heading.index("cpu"), heading.index("held by")
    assert " 1.2  3.1G  0  32G   87%  31G" == first[start:end].rstrip()
    assert "                     87%  31G" == second[start:end].rstrip()
    assert "" == other[start:]


def test_no_columns_without_a_monitor() -> None:
    """If no agent has a monitor, the widest terminal and a pipe have the other columns only."""
    without = ["node", "rank", "port", "pid", "script", "state", "since", "held", "by"]
    assert without == drawn([NODE, SERVE], 200)[0].split()
    assert without == plain_table(rows(nodes_of(NODE, SERVE), NOW)).splitlines()[0].split()


def test_columns_that_a_narrow_terminal_keeps() -> None:
    """The node, the rank and its state are shown when the process and its script do not fit."""
    console = Console(width=60)
    with console.capture() as captured:
        console.print(rich_table(rows(nodes_of(NODE, SERVE), NOW), 60))
    assert ["node", "rank", "state", "held", "by"] == captured.get().splitlines()[0].split()


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (200, ["node", "rank", "port", "pid", "script", "state", "since", "held", "by"]),
        (85, ["node", "rank", "port", "script", "state", "since", "held", "by"]),
        (80, ["node", "rank", "port", "state", "since", "held", "by"]),
        (60, ["node", "rank", "state", "held", "by"]),
        (40, ["node", "rank", "state"]),
    ],
)
def test_a_long_text_does_not_displace_its_rank(width: int, columns: list[str]) -> None:
    """The text of a crash is cut before a column is omitted; the rank and the start of the text are always shown."""
    detail = "ValueError: tensors of the shapes (32, 512) and (32, 768) cannot be added in block 7 of the encoder"
    crashed = TargetInfo(5680, 2, 4, 123456, "train.py", state=State.CRASHED, detail=detail, since=400.0)
    agent = AgentInfo("1a", host="node-1", targets=(crashed, *NODE.targets[:1]))
    console = Console(width=width)
    with console.capture() as captured:
        console.print(rich_table(rows(nodes_of(agent), NOW), width))
    heading, first, _second = captured.get().splitlines()
    assert columns == heading.split()
    assert ["node-1", "2"] == first.split()[:2]
    assert "crashed: ValueErr" in first


def test_the_most_important_rows() -> None:
    """If a terminal has too few lines, processes that run are left out first, and counted."""
    running, attached = Row((), Kind.RUNNING), Row((), Kind.RUNNING, is_attached=True)
    waiting, crashed, stopped = (Row((), kind) for kind in (Kind.WAITING, Kind.CRASHED, Kind.STOPPED))
    lines = [running] * 5 + [waiting, crashed, attached, stopped]
    shown, hidden = most_important(lines, 4)
    assert [waiting, crashed, attached, stopped] == shown
    assert "... and 5 more: 5 running" == summary(hidden)
    assert "... and 3 more: 1 waiting" == summary([waiting, Row((), Kind.UNKNOWN), Row(())])
    assert (lines, []) == most_important(lines, 9)
