"""Renders the verdicts on all jobs as text or JSON."""

from __future__ import annotations

from collections.abc import Sequence

from relay_client.hang.sentences import describe_job
from relay_client.hang.verdict import GroupVerdict, JobVerdict
from relay_core.value_parsers import format_ranges

__all__ = ["verdict_as_object", "verdict_as_text"]


def verdict_as_text(verdicts: Sequence[JobVerdict]) -> str:
    """Return one paragraph for each group; if there are several jobs, each has a heading."""
    blocks = []
    for verdict in verdicts:
        job = verdict.job
        heading = f"job on ports {format_ranges(job.ports)}{f' ({job.script})' if job.script else ''}:"
        blocks += ([heading] if len(verdicts) > 1 else []) + describe_job(verdict)
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
