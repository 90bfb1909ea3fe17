"""Groups ranks by the value of an expression, outliers first, and renders the groups; sans-IO.

Why values are compared for equality, by their text or checksum, and not within a tolerance: "nearly equal" is not
transitive, so the groups would depend on the order of the ranks, and a tolerance that fits a loss does not fit a
gradient. The price is that ranks whose sums were added in another order are separate groups; the first differing
element (`find_differences`) then shows how far apart they are.

Why the rarest values come first and the largest group is the reference: nobody knows which value is correct, but in a
job whose ranks do the same, the few that differ are what the user is looking for. With a table by rank, they would be
anywhere among a thousand lines. The smallest rank was rejected as the reference: if it is the odd one, all others
appear to be wrong. Ties are broken by rank, so that the output of two calls can be compared.

Each group is compared with the reference only: with k groups, that is k - 1 searches instead of k * (k - 1) / 2, and a
difference between two outliers explains nothing that their differences from the reference do not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from relay_core.agent_api.evaluation import Difference, Value
from relay_core.agent_api.members import Member
from relay_core.foreign import escape_controls
from relay_core.grouping import by_key
from relay_core.value_parsers import format_ranges


def odd_ones_first(values: Iterable[Value]) -> list[Value]:
    """Return each value once, with the ranks that have it: those without a value first, then the rarest values.

    The place of evaluation does not affect the grouping; a group's `place` is empty if its members' places differ.
    """
    found = by_key(((value.error, value.is_silent, value.text, value.digest, value.leaves), value) for value in values)
    groups = [_group(equal) for equal in found.values()]
    groups.sort(key=lambda value: (not value.error, len(value.members), [_order(m) for m in value.members]))
    texts, full = (Counter(getattr(value, name) for value in groups) for name in ("text", "in_full"))
    return [_in_full(value, full) if value.in_full and texts[value.text] > 1 else value for value in groups]


def _group(equal: Sequence[Value]) -> Value:
    """Return equal values as one, with all of their members."""
    places = {value.place for value in equal}
    return replace(
        equal[0],
        members=tuple(sorted((member for value in equal for member in value.members), key=_order)),
        place=places.pop() if len(places) == 1 else "",
        difference=next((value.difference for value in equal if value.difference), None),
    )


def _in_full(value: Value, texts: Mapping[str, int]) -> Value:
    """Return a value with a text that differs from those of other groups: all digits, or else the checksum."""
    is_only = texts[value.in_full] == 1
    return replace(value, text=value.in_full if is_only else f"{value.text} (checksum {value.digest})")


def shared_ranks(groups: Iterable[Value]) -> set[int]:
    """Return the ranks that several processes have; such ranks exist only if several jobs are connected."""
    members = {member for group in groups for member in group.members}
    processes = Counter(member.rank for member in members if member.rank is not None)
    return {rank for rank, count in processes.items() if count > 1}


def label(members: Sequence[Member], shared: Collection[int] = ()) -> str:
    """Return processes as text: `rank 5`, `ranks 0-4,6-7`, or `port 6000` for a process without a rank.

    Args:
        members: The processes.
        shared: Ranks that occur in several jobs; their ports are added, as in `rank 5 (port 5683)`.
    """
    members = sorted(members, key=_order)
    ranks = {member.rank for member in members if member.rank is not None}
    texts = [f"port {member.port}" for member in members if member.rank is None]
    if ranks:
        text = f"{'rank' if len(ranks) == 1 else 'ranks'} {format_ranges(sorted(ranks))}"
        if not ranks.isdisjoint(shared):
            ports = sorted(member.port for member in members if member.rank is not None)
            text += f" ({'port' if len(ports) == 1 else 'ports'} {format_ranges(ports)})"
        texts.insert(0, text)
    return ", ".join(texts)


def _order(member: Member) -> tuple[bool, int, int]:
    return member.rank is None, member.rank or 0, member.port


# Renders the values of many ranks as a table or as JSON objects.

MAIN = "__main__"
"""The `place` of a value that was evaluated in a running rank."""
UNDEFINED = re.compile("NameError: name ('[^']+') is not defined")
MAX_LINE = 500
"""Maximum number of characters in a value in the table; --json prints everything that the agents sent."""


Differences = Mapping[Value, Difference]
"""How groups differ from the last one."""


def show_values(groups: Sequence[Value], differences: Differences | None = None, values: Sequence[Value] = ()) -> str:
    """Return one line for each group, with its value or its difference from the last group, and where it was evaluated.

    Args:
        groups: The groups, outliers first.
        differences: For a comparison, how groups differ from the last one; None to show values.
        values: The values before they were grouped, if their places may differ within a group.
    """
    if not groups:
        return "no matching process"
    shared = shared_ranks(groups)
    labels = [label(group.members, shared) or group.text for group in groups]
    width = min(max(map(len, labels)), 40)
    lines = []
    for name, group in zip(labels, groups, strict=True):
        what = _outcome(group, differences, is_last=group is groups[-1], is_only=len(groups) == 1)
        lines.append(f"{name:{width}}  {what}")
    return "\n".join([*lines, "", *_places(values or groups, shared)]).rstrip()


def as_objects(
    groups: Sequence[Value], differences: Mapping[Value, Difference] | None = None
) -> list[dict[str, object]]:
    """Return the groups as JSON objects."""
    return [_as_object(group, (differences or {}).get(group)) for group in groups]


def hint_for(groups: Sequence[Value], waiting: Collection[int] = ()) -> str:
    """Return a hint for a name that a running program does not have; "" for any other error.

    Args:
        groups: The groups.
        waiting: The ports of the processes that are waiting for a debugger at their start.
    """
    without = [group for group in groups if undefined_name(group.place, group.error)]
    if not without:
        return ""
    name = undefined_name(without[0].place, without[0].error)
    members = [member for group in without for member in group.members]
    if all(member.port in waiting for member in members):
        return f"{name} does not exist yet in {label(members)}: not started, waiting for a debugger"
    where = f"in {label(members)}, " if len(without) < len(groups) else ""
    return (
        f"{where}{name} is neither a global variable of the program nor a variable of a function that the main thread "
        "is executing; 'relay-client stacks --locals' shows those variables"
    )


def undefined_name(place: str, error: str) -> str:
    """Return the quoted name that a running program does not have; "" for any other error."""
    found = UNDEFINED.match(error) if place == MAIN else None
    return found.group(1) if found is not None else ""


def hint_about_jobs(groups: Sequence[Value]) -> str:
    """Return a hint on how to choose one of several jobs on the command line; "" if there is only one job."""
    shared = shared_ranks(groups)
    if not shared:
        return ""
    port = min(member.port for group in groups for member in group.members if member.rank in shared)
    return f"several jobs are connected; choose one by the ports of its processes, as in --ports {port}"


def _outcome(group: Value, differences: Mapping[Value, Difference] | None, *, is_last: bool, is_only: bool) -> str:
    if group.error:
        return f"no value: {group.error}"
    if differences is None:
        return value_line(group.text)
    if group in differences:
        return describe_difference(differences[group])
    if group.sharded == group.leaves > 0:
        return f"not compared, because the ranks hold different parts ({_size(group)})"
    if not is_last:
        return f"differs, checksum {group.digest} ({_size(group)})"
    alone = "equal" if len(group.members) > 1 else "the only value"
    return f"{alone if is_only else 'reference value'}, checksum {group.digest} ({_size(group)})"


def value_line(text: str) -> str:
    """Return the text of a value as one line of at most `MAX_LINE` characters."""
    line = escape_controls(text)
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 3]}..."


def _size(group: Value) -> str:
    compared = group.leaves - group.sharded
    sharded = f"{group.sharded} sharded tensor{'s' if group.sharded != 1 else ''}"
    if not compared and group.sharded:
        return sharded
    size = f"{compared} tensors and values" if compared != 1 else "one value"
    return f"{size}; {sharded} not compared" if group.sharded else size


def describe_difference(difference: Difference) -> str:
    """Return a difference as a sentence, such as `first differs at 'fc.weight' [64, 64] float32, element 7: ...`."""
    name = f"'{difference.leaf}'" if difference.leaf else "the value"
    where = f"{name} {difference.description}".rstrip()
    if difference.note:
        return f"differs at {where}: {difference.note}"
    if difference.element is None:
        return f"first differs at {where}: {difference.first} instead of {difference.second}"
    element = f"element {difference.element:,}"
    return f"first differs at {where}, {element}: {difference.first} instead of {difference.second}"


def _places(values: Iterable[Value], shared: Collection[int]) -> list[str]:
    """Return where the values were evaluated, the rarest place first."""
    known = (value for value in values if value.place and not value.is_silent)
    places = by_key((value.place, member) for value in known for member in value.members)
    if len(places) == 1:
        return [f"evaluated in {next(iter(places))}"]
    rarest_first = sorted(places.items(), key=lambda found: len(found[1]))
    return [f"evaluated in {place}: {label(members, shared)}" for place, members in rarest_first]


def _as_object(group: Value, difference: Difference | None) -> dict[str, object]:
    found: dict[str, object] = {
        "ranks": [member.rank for member in group.members if member.rank is not None],
        "ports": [member.port for member in group.members],
        "place": group.place,
        "text": group.text,
        "error": group.error,
        "silent": group.is_silent,
    }
    if group.leaves:
        found |= {"digest": group.digest, "leaves": group.leaves, "sharded": group.sharded}
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
