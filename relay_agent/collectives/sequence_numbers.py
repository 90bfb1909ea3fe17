"""How many collective operations this process has begun, from the numbers that torch gives to them.

Reading a number takes a microsecond; torch's flight recorder has the same numbers, but reading it takes 50 ms.
"""

from __future__ import annotations

import sys

from relay_agent.collectives.flight_recorder import members_of_groups
from relay_core.agent_api.collectives import MAX_GROUPS
from relay_core.value_parsers import format_ranges

__all__ = ["begun_collectives"]


def begun_collectives() -> dict[str, int]:
    """Return how many collective operations this process has begun, by group; {} if that is not known.

    In a job whose ranks call the same operations, ranks have equal counts of a group between the same two operations of
    this group. Of very many groups, those with the most operations are reported.
    """
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    groups = getattr(getattr(c10d, "_world", None), "pg_names", {})
    try:
        members = members_of_groups(c10d)
        counts = {str(name): _number(group) for group, name in list(groups.items())}
    except Exception:  # noqa: BLE001 - whatever a backend that does not count raises
        return {}
    most = sorted(counts, key=lambda name: -counts[name])[:MAX_GROUPS]
    return {f"{name} {format_ranges(members.get(name, ()))}": counts[name] for name in most}


def _number(group: object) -> int:
    """Return the number of a group's last operation, which may be one of several backends."""
    backends = {id(found): found for device in group._device_types if (found := group._get_backend(device))}  # type: ignore[attr-defined]  # noqa: SLF001 - it has no public one
    return sum(int(backend._get_sequence_number_for_group()) for backend in backends.values())  # noqa: SLF001
