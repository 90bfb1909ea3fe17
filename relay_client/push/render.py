"""The result of a push as text, or as a JSON object."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from relay_client.compare.groups import label
from relay_client.push.deliver import Outcome
from relay_core.agent_api.members import grouped
from relay_core.agent_api.push import Pushed, State

SHOWN = 2
"""Maximum number of changes and remarks in one line."""


def show_outcome(name: str, outcome: Outcome) -> str:
    """Return what was replaced in which ranks, and one line for each item that was not replaced.

    Args:
        name: The file's name, as shown to users.
        outcome: The result of the push.
    """
    lines = [f"{name}: {_where(outcome)}"] if any(result.state is State.DONE for result in outcome.results) else []
    lines += _by_line(outcome, lambda result: _changes(result, is_only=outcome.is_same))
    lines += [f"{label(result.members)}: not replaced: {result.error}" for result in outcome.failed]
    return "\n".join([*lines, *_by_line(outcome, lambda result: result.kept)])


def briefly(text: str) -> str:
    """Return the text of a result as one line, with the first lines about changes and about what was not replaced."""
    first, *others = text.split("\n")
    more = [f"{len(others) - SHOWN} more (--json prints all)"] if len(others) > SHOWN else []
    return "; ".join([first, *others[:SHOWN], *more])


def as_object(outcome: Outcome) -> dict[str, object]:
    """Return the result as a JSON object."""
    return {
        "same_step": outcome.is_same_step,
        "function": outcome.place,
        "stopped": bool(outcome.halted),
        "processes": [
            {
                "ranks": [member.rank for member in result.members if member.rank is not None],
                "ports": [member.port for member in result.members],
                "replaced": result.state is State.DONE,
                "changed": list(result.changed),
                "kept": list(result.kept),
                "same": result.is_same,
                "error": result.error,
                "digest": result.digest,
            }
            for result in outcome.results
        ],
    }


def _where(outcome: Outcome) -> str:
    results = [result for result in outcome.results if result.state is State.DONE]
    results = [result for result in results if outcome.is_same or not result.is_same] or results
    done = [member for result in results for member in result.members]
    ranks = label(done)
    if outcome.is_same and any(result.kept for result in outcome.results):
        return f"nothing was replaced in {ranks}, but parts of the file may not be in effect"
    if outcome.is_same:
        return f"nothing to replace: {ranks} {'are' if len(done) > 1 else 'is'} already executing this code"
    if outcome.place:
        step = "at the same step" if outcome.is_same_step else f"while all were held, {_perhaps(outcome)}"
        call = "at the next" if any(map(_has_code, results)) else "in the current"
        return f"replaced in {ranks} {step}; takes effect {call} call to {outcome.place}"
    if outcome.halted:
        return f"replaced in {ranks} immediately, because {outcome.halted}"
    return f"replaced in {ranks} immediately, not at the same step"


def _perhaps(outcome: Outcome) -> str:
    """Return which ranks are known to have been at the same step, if it is not all of them."""
    known = [label(group) for group in outcome.same_step if len(group) > 1]
    only = f" (at the same step: {'; '.join(known)})" if known else ""
    return f"perhaps not at the same step{only}"


def _has_code(result: Pushed) -> bool:
    """Return whether the code of a function has changed; a call in progress reads new constants, but no new code."""
    return any(each.endswith("()") and " = " not in each for each in result.changed) or not result.changed


def _changes(result: Pushed, *, is_only: bool) -> tuple[str, ...]:
    """Return the line about the changes in a rank; none if the first line already states that nothing was replaced."""
    if result.is_same:
        return () if is_only else ("nothing to replace",)
    return (", ".join(result.changed) or "only line numbers changed",)


def _by_line(outcome: Outcome, lines_of: Callable[[Pushed], Iterable[str]]) -> list[str]:
    """Return each line once, after the ranks to which it applies."""
    done = [result for result in outcome.results if result.state is State.DONE]
    lines = grouped(Pushed(result.members, error=line) for result in done for line in lines_of(result))
    return [f"{label(line.members)}: {line.error}" for line in lines]
