"""The verdicts on all jobs as text, with one paragraph for each process group, or as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from relay_client.hang.reports import NOT_REGISTERED, Job, RankReport
from relay_client.hang.verdict import IN_A_CALL, POINT_TO_POINT, GroupVerdict, JobVerdict, UnrecordedWait
from relay_client.ranks.view import Kind
from relay_client.ui.text import duration, format_ports, format_ranks, in_plural
from relay_core.agent_api.collectives import Operation
from relay_core.grouping import by_key
from relay_core.value_parsers import format_ranges

# The verdict on a job as plain text, with one paragraph for each process group; sans-IO.

MAX_PLACES = 8
"""Maximum number of places in one sentence."""

_ACTIVITIES = {
    "running Python": "running Python",
    "running": "running in C code",
    "blocked": "blocked in a call",
}
"""What the main thread of a rank is doing, by the word that the job sends."""


def describe_job(verdict: JobVerdict) -> list[str]:
    """Return the paragraphs about a job."""
    groups, job = verdict.groups, verdict.job
    return [
        *_cycles(groups),
        *(_group_paragraph(group, groups, job) for group in groups),
        *(_unrecorded(wait, verdict) for wait in verdict.unrecorded),
        *map(_mismatch, verdict.mismatched),
        *_waiting_for_debuggers(job, groups),
        *_rows(job, groups),
        *_ras(job),
        *([] if groups or verdict.unrecorded else _without_verdict(job)),
    ]


def _group_paragraph(verdict: GroupVerdict, verdicts: Sequence[GroupVerdict], job: Job) -> str:
    """Return the sentence about one group."""
    variants = verdict.variants
    since = f" ({duration(verdict.age)} ago)" if verdict.age is not None else ""
    parts = []
    if len(variants) > 1:
        calls = (f"{format_ranks(ranks)} entered {text}{_called(ranks, verdict, job)}" for text, ranks in variants)
        parts.append(f"collective #{verdict.number} differs between ranks: {', '.join(calls)}{since}")
    else:
        text = f" {variants[0][0]}" if variants else ""
        whole = len(verdict.entered) == len(verdict.members) and len(verdict.members) > 1
        who = f"all {len(verdict.members)} ranks" if whole else format_ranks(verdict.entered)
        called = _called(verdict.waiting, verdict, job)
        now = _now(verdict.waiting, called, job)
        parts += [f"collective #{verdict.number}{text}", f"entered by {who}{called}{since}{now}"]
        parts += [_slow(verdict)] if whole else []
    for word, ranks in (("missing", verdict.missing), ("unknown:", verdict.unknown)):
        if ranks:
            each = _by_text(ranks, lambda rank: _whereabouts(rank, verdict, verdicts, job))
            clauses = (f"{format_ranks(found)}, which {_agreeing(text, found)}" for text, found in each)
            parts.append(f"{word} {'; '.join(clauses)}")
    return f"{_group_name(verdict)}: {'; '.join(parts)}"


def _mismatch(verdict: GroupVerdict) -> str:
    """Return the sentence about a completed operation that differs between ranks."""
    calls = ", ".join(f"{format_ranks(ranks)} entered {text}" for text, ranks in verdict.variants)
    return (
        f"{_group_name(verdict)}: collective #{verdict.number} is complete, but differs between ranks, so its result "
        f"is wrong: {calls}"
    )


def _group_name(verdict: GroupVerdict) -> str:
    """Return the name of a group and its ranks: `group 'tensor' (ranks 2-3)`."""
    who = f"{len(verdict.members)} ranks" if verdict.name == "default" else format_ranks(verdict.members)
    return f"group '{verdict.name}' ({who})"


def _called(ranks: Iterable[int], verdict: GroupVerdict, job: Job) -> str:
    """Return where these ranks called the operation, if all did at the same place: ` at train.py:90 in step`."""
    return _at(_call_of(job.ranks[rank], verdict.entered.get(rank)) for rank in ranks if rank in job.ranks)


def _call_of(report: RankReport, operation: Operation | None) -> str:
    """Return where a rank called an operation; "" if it has returned and its recorder does not have the place."""
    return (operation.called if operation is not None else "") or (report.place if report.is_in_collective else "")


def _now(ranks: Iterable[int], called: str, job: Job) -> str:
    """Return where these ranks are, if this is not where they called the operation; with NCCL, they return from it."""
    reports = [job.ranks[rank] for rank in ranks if rank in job.ranks]
    place = _at(report.place for report in reports)
    remarks = {_activity_remark(report) for report in reports}
    remark = remarks.pop() if len(remarks) == 1 else ""
    return f", now{place}{remark}" if place and place != called else ""


def _at(places: Iterable[str]) -> str:
    """Return ` at ` and the place, if there is only one."""
    found = set(places)
    place = found.pop() if len(found) == 1 else ""
    return f" at {place}" if place else ""


def _slow(verdict: GroupVerdict) -> str:
    """Return what an operation that all ranks have entered may be waiting for."""
    who = format_ranks(verdict.waiting)
    if verdict.is_usual:
        gap = duration(verdict.longest_gap)
        return f"not complete in {who}, which is usual here: {gap} have passed between two operations of this group"
    return f"not complete in {who}: the operation is slow, or a device or the network is stuck"


def _by_text(ranks: Iterable[int], text_of: Callable[[int], str]) -> list[tuple[str, list[int]]]:
    """Group ranks by their texts; order the groups by their first ranks."""
    return list(by_key((text_of(rank), rank) for rank in ranks).items())


def _agreeing(text: str, ranks: Sequence[int]) -> str:
    """Return the end of a sentence about one rank, with verbs that agree with these ranks."""
    return text if len(ranks) == 1 else in_plural(text)


def _whereabouts(rank: int, verdict: GroupVerdict, verdicts: Sequence[GroupVerdict], job: Job) -> str:
    """Return what a rank is doing instead, as the end of a sentence that begins with "which"."""
    report = job.ranks.get(rank)
    if report is None:
        return NOT_REGISTERED
    place = f" at {report.place}" if report.place else ""
    if report.silence:
        return f"{report.silence}{f' and is{place}' if place else ''}{_gil(report)}"
    other = next((one for one in verdicts if one is not verdict and rank in one.waiting), None)
    if other is not None:
        operation = other.entered[rank]
        name = f" {operation.name}" if operation is not None else ""
        return f"is waiting in collective #{other.number}{name} of {_group_name(other)}{place}"
    if text := _held(report):
        return f"{text}{place}"
    if verdict.unknown and rank in verdict.unknown:
        return f"has no record of this group{f' and is{place}' if place else ''}"
    return f"is{place or ' at an unknown place'}{_activity_remark(report)}"


def _activity_remark(report: RankReport) -> str:
    activity = _ACTIVITIES.get(report.activity, "")
    return f" ({activity})" if activity else ""


def _unrecorded(wait: UnrecordedWait, verdict: JobVerdict) -> str:
    """Return the sentence about ranks in a call that is not recorded, and where the ranks are that are in none."""
    ranks, place = wait.ranks, f" at {wait.place}" if wait.place else ""
    verb, they = ("is", "it") if len(ranks) == 1 else ("are", "they")
    if wait.is_for_device:
        head = f"{format_ranks(ranks)} {verb} waiting for the device in {wait.call}{place}"
    elif wait.call in POINT_TO_POINT:
        head = f"{format_ranks(ranks)} {verb} in {wait.call}{place}, which is not a collective operation"
    else:
        head = (
            f"{format_ranks(ranks)} {verb} in {wait.call}{place}, which torch has not recorded as waiting: {they} may "
            "be connecting to the other ranks"
        )
    waiting = {rank for one in verdict.unrecorded for rank in one.ranks}
    return "; ".join((head, *_places(report for report in verdict.job.ranks.values() if report.rank not in waiting)))


def _places(reports: Iterable[RankReport]) -> Iterator[str]:
    """Yield where ranks are, and what they are doing there: `rank 2 is at loader.py:8 in load (blocked in a call)`."""
    texts = {
        report.rank: f"{_held(report) or 'is'} at {report.place}{_activity_remark(report)}"
        for report in reports
        if report.place and not report.silence
    }
    found = _by_text(texts, lambda rank: texts[rank])
    for text, ranks in found[:MAX_PLACES]:
        yield f"{format_ranks(ranks)} {_agreeing(text, ranks)}"
    if more := sum(len(ranks) for _, ranks in found[MAX_PLACES:]):
        yield f"{more} other rank{'s are' if more > 1 else ' is'} elsewhere"


def _held(report: RankReport) -> str:
    """Return how a debugger, or the wait for one, holds a rank; "" if nothing holds it."""
    if report.view.kind is Kind.CRASHED:
        return f"is held at an exception{_detail(report)}"
    if report.view.kind is Kind.WAITING:
        return report.view.clause
    return "is stopped by a debugger" if report.is_stopped else ""


def _gil(report: RankReport) -> str:
    """Return a remark if only a signal could read a rank's stack, which means that C code holds the GIL; else ""."""
    how = report.collectives.stacks.how if report.collectives is not None else ""
    return " (C code holds the GIL)" if how == "faulthandler" else ""


def _cycles(verdicts: Sequence[GroupVerdict]) -> Iterator[str]:
    """Yield a sentence for each pair of groups whose ranks wait for each other.

    This happens if the ranks use the groups in different orders, or if one of them uses the wrong group.
    """
    for index, one in enumerate(verdicts):
        for other in verdicts[index + 1 :]:
            here = set(one.waiting).intersection(other.missing)
            there = set(other.waiting).intersection(one.missing)
            if here and there:
                yield (
                    f"{_group_name(one)} and {_group_name(other)} are waiting for each other: {format_ranks(here)} and "
                    f"{format_ranks(there)} enter their collectives in different orders, or use the wrong group"
                )


def _waiting_for_debuggers(job: Job, groups: Sequence[GroupVerdict]) -> Iterator[str]:
    """Yield a sentence on ranks that wait for a debugger and are in no group's sentence, if another rank is running.

    Before the first process group exists, for example in `init_process_group`, the other ranks wait for these ranks.
    """
    living = [report for report in job.ranks.values() if not report.has_ended]
    if all(report.is_stopped for report in living):
        return
    named = {rank for group in groups for rank in (*group.missing, *group.unknown)}
    at_start = (report for report in living if report.view.kind is Kind.WAITING)
    waiting = {report.rank: report for report in at_start if report.rank not in named}
    for text, ranks in _by_text(waiting, lambda rank: _detail(waiting[rank])):
        ports = [report.target.port for rank in ranks if (report := waiting[rank]).target is not None]
        debugger = f"a debugger on {format_ports(ports)}"
        who = "other ranks" if len(living) > len(waiting) + 1 else "the other rank"
        verb, awaited = ("is", "that rank") if len(ranks) == 1 else ("are", "those ranks")
        yield f"{format_ranks(ranks)} {verb} waiting for {debugger}{text}; {who} may be waiting for {awaited}"


def _detail(report: RankReport) -> str:
    return f" ({report.target.detail})" if report.target is not None and report.target.detail else ""


def _rows(job: Job, groups: Sequence[GroupVerdict]) -> Iterator[str]:
    """Yield sentences about the ranks whose groups are unknown, with the reasons, if no group's sentence has them."""
    named = {rank for group in groups for rank in (*group.missing, *group.unknown)}
    silent = [report for report in job.ranks.values() if report.silence and report.rank not in named]
    for text, ranks in _by_text([report.rank for report in silent], lambda rank: job.ranks[rank].silence):
        yield f"{format_ranks(ranks)} {_agreeing(text, ranks)}"
    answered = [report for report in job.ranks.values() if report.collectives is not None and not report.silence]
    asked = [report for report in answered if report.view.kind is not Kind.WAITING]
    problems = {report.rank: report.collectives.problem for report in asked if report.collectives}
    for text, ranks in _by_text([rank for rank, problem in problems.items() if problem], lambda rank: problems[rank]):
        yield f"{format_ranks(ranks)}: {text}"


def _ras(job: Job) -> Iterator[str]:
    for status in job.ras:
        if status.error:
            yield status.error
        for communicator in status.communicators:
            size = f" ({communicator.size} ranks)" if communicator.size else ""
            yield f"NCCL RAS: communicator {communicator.name}{size}: {'; '.join(communicator.remarks)}"


def _without_verdict(job: Job) -> Iterator[str]:
    """Yield the reason why no group is waiting."""
    living = [report for report in job.ranks.values() if not report.has_ended]
    stopped = [report.rank for report in living if report.is_stopped]
    if living and len(stopped) == len(living):
        who = f"all {len(stopped)} ranks are" if len(stopped) > 1 else f"{format_ranks(stopped)} is"
        yield f"{who} stopped by a debugger or waiting for one: this is not a hang"
        return
    known = [report for report in living if report.collectives is not None and report.collectives.groups]
    if any(report.activity in IN_A_CALL and _uses_device(report) for report in known):
        head = "torch has recorded no collective in which a rank is waiting; ranks may be waiting for their device"
        yield f"{head}: {'; '.join(_places(living))}"
    elif known:
        yield "no rank is waiting in a collective; run 'relay-client stacks' to see what each rank is doing"


def _uses_device(report: RankReport) -> bool:
    """Return whether a rank uses NCCL, so that any of its calls, such as `item()`, may wait for the device."""
    return any(group.recorder == "nccl" for group in (report.collectives.groups if report.collectives else ()))


# Renders the verdicts on all jobs as text or JSON.


def verdict_as_text(found: Mapping[str, Any]) -> str:
    """Return one paragraph for each group of what `verdict_as_object` returns; each of several jobs has a heading."""
    blocks = []
    for job in found["jobs"]:
        script = f" ({job['script']})" if job["script"] else ""
        heading = f"job on ports {format_ranges(job['ports'])}{script}:"
        blocks += ([heading] if len(found["jobs"]) > 1 else []) + job["text"]
    return "\n\n".join(blocks)


def verdict_as_object(verdicts: Sequence[JobVerdict]) -> dict[str, object]:
    """Return the verdicts as a JSON object."""
    return {"jobs": [_job(verdict) for verdict in verdicts]}


def _job(verdict: JobVerdict) -> dict[str, object]:
    job = verdict.job
    return {
        "ports": job.ports,
        "script": job.script,
        "text": describe_job(verdict),
        "groups": [_group(group) for group in verdict.groups],
        "mismatched": [_group(group) for group in verdict.mismatched],
        "unrecorded": [
            {"call": wait.call, "place": wait.place, "device": wait.is_for_device, "ranks": list(wait.ranks)}
            for wait in verdict.unrecorded
        ],
        "ranks": [
            {
                "rank": report.rank,
                "place": report.place,
                "activity": report.activity,
                "stopped": report.is_stopped,
                "ended": report.has_ended,
                "error": report.silence,
            }
            for report in job.ranks.values()
        ],
    }


def _group(group: GroupVerdict) -> dict[str, object]:
    return {
        "name": group.name,
        "ranks": list(group.members),
        "number": group.number,
        "operations": [{"operation": text, "ranks": list(ranks)} for text, ranks in group.variants],
        "entered": list(group.entered),
        "waiting": list(group.waiting),
        "missing": list(group.missing),
        "unknown": list(group.unknown),
        "seconds": group.age,
    }
