"""Facts about the output of checks."""

from relay_core.diagnosis.checks import Result, Status, as_json, as_text

RESULTS = (
    Result("name", Status.PASSED, "contoso is 10.0.0.4", seconds=0.012),
    Result("hybrid connection", Status.FAILED, "there is none", "create it", 5, 2.5),
    Result("agent", Status.SKIPPED, "needs 'hybrid connection'"),
)


def test_the_columns_are_aligned_and_a_hint_follows_its_failure() -> None:
    """One row per check, and what to do below a failure."""
    assert [
        "check              result   time   finding",
        "name               pass     12 ms  contoso is 10.0.0.4",
        "hybrid connection  fail     2.5 s  there is none",
        "                                   -> create it",
        "agent              skipped         needs 'hybrid connection'",
    ] == as_text(RESULTS).splitlines()


def test_control_characters_are_escaped() -> None:
    """A text from the network can neither add a line nor control the terminal."""
    text = as_text([Result("agent", Status.PASSED, "evil\x1b[2J\nname  pass")])
    assert 2 == len(text.splitlines())
    assert "\x1b" not in text


def test_json_has_every_result_and_the_exit_code() -> None:
    """Programs get the same facts; what is absent is null."""
    found = as_json(RESULTS, 5)
    assert 5 == found["exit_code"]
    assert {
        "check": "agent",
        "status": "skipped",
        "finding": "needs 'hybrid connection'",
        "hint": None,
        "exit_code": 0,
        "seconds": None,
    } == found["checks"][2]
