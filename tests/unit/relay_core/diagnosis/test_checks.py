"""Facts about running checks."""

import asyncio

from relay_core.diagnosis.checks import Examination, Skipped, Status
from relay_core.errors import NoListener, Unauthorized


async def passing() -> str:
    return "fine"


async def refused() -> str:
    raise Unauthorized("no access", hint="get a key")


async def inapplicable() -> str:
    raise Skipped("not here")


async def broken() -> str:
    raise LookupError("a secret")


async def test_a_passed_check_has_its_finding_and_its_time() -> None:
    """The result of a check that returns is what it found and how long it took."""
    examination = Examination()
    await examination.check("name", passing)
    (result,) = examination.results
    assert (Status.PASSED, "fine", 0) == (result.status, result.finding, examination.exit_code)
    assert result.seconds is not None


async def test_a_failed_check_has_the_sentence_the_hint_and_the_code_of_its_error() -> None:
    """The result of a check that raises is the text of the error for users."""
    examination = Examination()
    await examination.check("token", refused)
    (result,) = examination.results
    assert (Status.FAILED, "no access", "get a key", 4) == (
        result.status,
        result.finding,
        result.hint,
        result.exit_code,
    )


async def test_the_first_failure_determines_the_exit_code() -> None:
    """Later failures do not change the exit code."""

    async def alone() -> str:
        raise NoListener("nobody")

    examination = Examination()
    for check in (passing, refused, alone):
        await examination.check(check.__name__, check)
    assert 4 == examination.exit_code


async def test_checks_after_a_failure_are_skipped_as_far_as_they_need_it() -> None:
    """A check that needs a failed one, directly or through others, does not run; the rest does."""
    examination = Examination()
    await examination.check("token", refused)
    await examination.check("right", passing, after=["token"])
    await examination.check("agent", passing, after=["right"])
    await examination.check("editor", passing)
    assert [
        ("token", Status.FAILED, "no access"),
        ("right", Status.SKIPPED, "needs 'token'"),
        ("agent", Status.SKIPPED, "needs 'right'"),
        ("editor", Status.PASSED, "fine"),
    ] == [(each.check, each.status, each.finding) for each in examination.results]


async def test_a_check_that_does_not_apply_blocks_nothing() -> None:
    """A check may need one that is skipped because it does not apply."""
    examination = Examination()
    await examination.check("proxy", inapplicable)
    await examination.check("port", passing, after=["proxy"])
    assert [Status.SKIPPED, Status.PASSED] == [each.status for each in examination.results]
    assert "not here" == examination.results[0].finding


async def test_a_check_is_limited_in_time() -> None:
    """A check that hangs fails after the limit."""

    async def hanging() -> str:
        await asyncio.Event().wait()
        return ""

    examination = Examination()
    await examination.check("name", hanging, limit=0.05)
    assert "no result within 0.05 s" == examination.results[0].finding
    assert 14 == examination.exit_code


async def test_an_unexpected_error_shows_only_its_type() -> None:
    """The text of an unknown exception may contain a secret, and the other checks still run."""
    examination = Examination()
    await examination.check("name", broken)
    assert "unexpected LookupError" == examination.results[0].finding
    assert 1 == examination.exit_code
