"""Facts about counting collective operations. Real groups are counted in tests/e2e/test_push_torch.py."""

import sys
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest

from relay_agent.collectives.flight_recorder import begun_collectives
from relay_core.agent_api.collectives import MAX_GROUPS


class Backend:
    """What torch calls the part of a group for one kind of device."""

    def __init__(self, number: int | None) -> None:
        self._number = number

    def _get_sequence_number_for_group(self) -> int:
        if self._number is None:
            raise RuntimeError("ProcessGroup does not implement sequence numbers")
        return self._number


class Group:
    """A process group as torch has it, with the attributes of torch 2.13."""

    def __init__(self, **backends: Backend) -> None:
        self._backends = backends
        self._device_types = list(backends)

    def _get_backend(self, device: str) -> Backend:
        return self._backends[device]


def counts(monkeypatch: pytest.MonkeyPatch, **groups: Group) -> dict[str, int]:
    """Return the counts of a process with these groups, each of ranks 0 to 3."""
    world = SimpleNamespace(
        pg_names={group: name for name, group in groups.items()},
        pg_group_ranks={group: {rank: rank for rank in range(4)} for group in groups.values()},
    )
    c10d = cast("ModuleType", SimpleNamespace(_world=world))
    monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", c10d)
    return begun_collectives()


def test_backends_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations of all backends of a group count; one backend for two kinds of devices counts once."""
    gloo = Backend(7)
    assert {"a 0-3": 10, "b 0-3": 7} == counts(
        monkeypatch, a=Group(cpu=gloo, cuda=Backend(3)), b=Group(cpu=gloo, cuda=gloo)
    )


def test_backend_that_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """If one group cannot be counted, nothing is known; the same without torch."""
    assert {} == counts(monkeypatch, a=Group(cpu=Backend(7)), b=Group(cpu=Backend(None)))
    monkeypatch.delitem(sys.modules, "torch.distributed.distributed_c10d")
    assert {} == begun_collectives()


def test_many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of very many groups, those with the most operations are counted."""
    found = counts(monkeypatch, **{f"g{number}": Group(cpu=Backend(number)) for number in range(MAX_GROUPS + 9)})
    assert (MAX_GROUPS, 9) == (len(found), min(found.values()))
