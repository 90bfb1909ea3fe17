"""Values of many ranks as a table, or as JSON objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relay_client.compare.groups import label
from relay_client.compare.search import Difference
from relay_core.agent_api.evaluation import Value

__all__ = ["as_objects", "show_values"]

MAX_LINE = 500
"""Characters of a value in the table; --json has all that the agents have sent."""


def show_values(groups: Sequence[Value], differences: Mapping[Value, Difference] | None = None) -> str:
    """Return one line for each group, and below it how it differs from the last one.

    Args:
        groups: Outliers first.
        differences: Of a comparison; None if values are shown.
    """
    if not groups:
        return "no matching process"
    labels = [label(group.members) or group.text for group in groups]
    width = min(max(map(len, labels)), 40)
    lines = []
    for name, group in zip(labels, groups, strict=True):
        what = _outcome(group, differences, is_last=group is groups[-1], is_only=len(groups) == 1)
        lines.append(f"{name:{width}}  {what}")
    return "\n".join([*lines, "", *_places(groups)]).rstrip()


def as_objects(
    groups: Sequence[Value], differences: Mapping[Value, Difference] | None = None
) -> list[dict[str, object]]:
    """Return the groups as JSON objects."""
    return [_as_object(group, (differences or {}).get(group)) for group in groups]


def _outcome(group: Value, differences: Mapping[Value, Difference] | None, *, is_last: bool, is_only: bool) -> str:
    if group.error:
        return f"no value: {group.error}"
    if differences is None:
        return group.text if len(group.text) <= MAX_LINE else f"{group.text[: MAX_LINE - 3]}..."
    if group in differences:
        return describe_difference(differences[group])
    size = f"{group.leaves} tensors and values" if group.leaves != 1 else "one value"
    if not is_last:
        return f"differs, checksum {group.digest} ({size})"
    return f"{'equal' if is_only and len(group.members) > 1 else 'the others'}, checksum {group.digest} ({size})"


def describe_difference(difference: Difference) -> str:
    """Return a difference as a sentence, such as `differs first at 'fc.weight' [64, 64] float32, element 7: ...`."""
    name = f"'{difference.leaf}'" if difference.leaf else "the value"
    where = f"{name} {difference.description}".rstrip()
    if difference.note:
        return f"differs at {where}: {difference.note}"
    if difference.element is None:
        return f"differs first at {where}: {difference.first}, others {difference.second}"
    return f"differs first at {where}, element {difference.element:,}: {difference.first}, others {difference.second}"


def _places(groups: Sequence[Value]) -> list[str]:
    """Return where the values were evaluated."""
    places: dict[str, list[str]] = {}
    for group in groups:
        if not group.is_silent:
            places.setdefault(group.place or "different places", []).append(label(group.members))
    if len(places) == 1:
        return [f"evaluated in {next(iter(places))}"]
    return [f"evaluated in {place}: {', '.join(labels)}" for place, labels in places.items()]


def _as_object(group: Value, difference: Difference | None) -> dict[str, object]:
    found: dict[str, object] = {
        "ranks": [member.rank for member in group.members if member.rank is not None],
        "ports": [member.port for member in group.members],
        "place": group.place,
        "text": group.text,
        "error": group.error,
        "silent": group.is_silent,
    }
    if group.digest:
        found |= {"digest": group.digest, "leaves": group.leaves}
    if difference is not None:
        found["difference"] = {
            "leaf": difference.leaf,
            "description": difference.description,
            "element": difference.element,
            "value": difference.first,
            "others": difference.second,
            "note": difference.note,
        }
    return found
