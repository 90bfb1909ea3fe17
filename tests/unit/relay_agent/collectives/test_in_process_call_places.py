"""Facts about where incomplete operations were called. A real job shows it in tests/e2e/test_hang.py."""

import pickle
import sys
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest

from relay_agent.collectives.in_process import COMPILER, MIN_AGE, with_call_places
from relay_core.agent_api.collectives import GroupRecord, Operation
from relay_core.agent_api.stacks import Frame

LIBRARY = "/usr/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"
FRAMES = [
    {"name": "all_reduce", "filename": LIBRARY, "line": 3245},
    {"name": "reduce", "filename": "/job/train.py", "line": 21},
    {"name": "main", "filename": "/job/train.py", "line": 90},
]
"""As torch 2.13 dumps them, innermost first."""
ENTRIES = [
    {"process_group": ("0", "default_pg"), "collective_seq_id": 6, "is_p2p": True, "frames": FRAMES[2:]},
    {"process_group": ("1", "tensor"), "collective_seq_id": 6, "is_p2p": False, "frames": FRAMES[2:]},
    {"process_group": ("0", "default_pg"), "collective_seq_id": 6, "is_p2p": False, "frames": FRAMES},
    {"process_group": ("0", "default_pg"), "collective_seq_id": 7, "is_p2p": False, "frames": FRAMES[2:]},
]
WAITING = (Frame("/job/train.py", 23, "log_loss"),)


def group(*, age: float = 12.0, completed: int = 5) -> GroupRecord:
    """Return a group of which a rank has entered two operations that are not complete."""
    operations = tuple(Operation(number, "all_reduce", age=age) for number in (5, 6, 7))
    return GroupRecord("0", "default_pg", "nccl", (0, 1), 7, completed, operations)


@pytest.fixture
def dumps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, ...]]:
    """The arguments with which a pretended recorder of NCCL was read."""
    asked = []

    def dump(*arguments: bool) -> bytes:
        asked.append(arguments)
        return pickle.dumps({"version": "2.10", "entries": ENTRIES})

    bindings = SimpleNamespace(_distributed_c10d=SimpleNamespace(_dump_nccl_trace=dump))
    monkeypatch.setitem(sys.modules, "torch", cast("ModuleType", SimpleNamespace(_C=bindings)))
    monkeypatch.setitem(sys.modules, COMPILER, cast("ModuleType", SimpleNamespace()))
    return asked


def places(group: GroupRecord, *main: Frame) -> list[str]:
    (found,) = with_call_places((group,), main)
    return [operation.called for operation in found.operations]


def test_first_incomplete_operation(dumps: list[tuple[bool, ...]]) -> None:
    """It has the innermost frame of the user's own code; only incomplete operations are read."""
    assert ["", "train.py:21 in reduce", ""] == places(group(), *WAITING)
    assert [(True, True, True)] == dumps


@pytest.mark.parametrize(
    ("found", "main"),
    [
        (group(age=MIN_AGE / 2), WAITING),
        (group(completed=7), WAITING),
        (group(), (*WAITING, Frame(LIBRARY, 3245, "all_reduce"))),
    ],
)
def test_nothing_is_read_without_need(
    dumps: list[tuple[bool, ...]], found: GroupRecord, main: tuple[Frame, ...]
) -> None:
    """Young operations do not matter; a thread that is still inside the call shows the place itself."""
    assert ["", "", ""] == places(found, *main)
    assert [] == dumps


def test_no_part_of_torch_is_imported(dumps: list[tuple[bool, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a job without torch's compiler, torch would import it, so nothing is read."""
    monkeypatch.delitem(sys.modules, COMPILER)
    assert ["", "", ""] == places(group(), *WAITING)
    assert [] == dumps


def test_dump_that_cannot_be_read(dumps: list[tuple[bool, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the recorder writes, the operations are reported."""
    for broken in (
        b"?",
        pickle.dumps([1]),
        pickle.dumps({"entries": [1, {"process_group": ()}, ENTRIES[2] | {"frames": [3]}]}),
    ):
        bindings = SimpleNamespace(_distributed_c10d=SimpleNamespace(_dump_nccl_trace=lambda *_, dump=broken: dump))
        monkeypatch.setattr(sys.modules["torch"], "_C", bindings)
        assert ["", "", ""] == places(group(), *WAITING)
