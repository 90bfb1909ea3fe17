"""Facts about calls of the functions for jobs as in the samples of azure-debug-relay, and with other arguments."""

import pytest

from tests.support.jobs.processes import run_job

ARGUMENTS = (
    *("--debug-relay-connection-name", "myhc", "--debug-port", "5680"),
    *("--debug-relay-connection-string-secret", "debugsecret", "--debug-wait", "0.2"),
)
"""The arguments of a step in the samples, and a short wait."""
SHOW = """
from relay_agent.debuggee import process
settings = process.current().settings
print(settings.access.connection_string_secret, settings.access.hc, settings.port, settings.wait)
"""
KEYWORDS = (
    "debug_relay_connection_string_secret='debugsecret', debug_relay_connection_name='hc', debug_port=5679, "
    "debugpy_connect_timeout=0.3"
)
OLD_ORDER = "start_remote_debugging() was called with arguments in an older order"
UNKNOWN = "() was called with unknown arguments, which are ignored"
USAGE = (
    "; call it as start_remote_debugging("
    "debug_relay_connection_name, debug_port, wait=SECONDS, debug_relay_connection_string_secret=NAME)"
)
USAGE_FROM_ARGS = "; call it as start_remote_debugging_from_args(argv=None, ignore_debug_flag=False)"


@pytest.mark.job
@pytest.mark.parametrize(
    ("call", "settings", "warning"),
    [
        ("start_remote_debugging_from_args(ignore_debug_flag=True)", "debugsecret myhc 5680 0.2", ""),
        (
            "start_remote_debugging_from_args(True)",
            "debugsecret myhc 5680 0.2",
            f"start_remote_debugging_from_args() was called with arguments in an older order{USAGE_FROM_ARGS}",
        ),
        (
            "start_remote_debugging_from_args(ignore_debug_flag=True, port=5)",
            "debugsecret myhc 5680 0.2",
            f"start_remote_debugging_from_args{UNKNOWN} (port){USAGE_FROM_ARGS}",
        ),
        ("start_remote_debugging('debugsecret', 'hc', 5679, 0.3)", "debugsecret hc 5679 0.3", OLD_ORDER + USAGE),
        ("start_remote_debugging('debugsecret', 'hc', debug_port=5679, wait=0.3)", "debugsecret hc 5679 0.3",
         OLD_ORDER + USAGE),
        (
            f"start_remote_debugging({KEYWORDS})", "debugsecret hc 5679 0.3", "",
        ),
        ("start_remote_debugging('debugsecret', debug_relay_connection_name='hc', wait=0.3)", "debugsecret hc 5678 0.3",
         OLD_ORDER + USAGE),
        ("start_remote_debugging('hc', '5679', 3, wait=0.3, timeout=15)", "None hc 5679 0.3",
         f"start_remote_debugging{UNKNOWN} (timeout, number 3){USAGE}"),
    ],
)  # fmt: skip
async def test_call_forms(call: str, settings: str, warning: str) -> None:
    """Each call starts debugging with its values, one sentence shows the right call, and the job continues."""
    environment = {"RELAY_CONNECTION_STRING": "invalid"}
    status, out, err = await run_job(
        f"import relay_agent\nprint(relay_agent.{call})\n" + SHOW, "--is-debug", "False", *ARGUMENTS, **environment
    )
    assert (0, ["False", settings]) == (status, out)
    assert [f"relay-agent: warning: {warning}"] * bool(warning) == [each for each in err.splitlines() if "call" in each]


@pytest.mark.job
@pytest.mark.parametrize(
    "call",
    [
        "start_remote_debugging()",
        "start_remote_debugging(None, None, None, None, None)",
        "start_remote_debugging('debugsecret', 'none', 'five')",
        "start_remote_debugging(object(), object())",
        "start_remote_debugging_from_args(5)",
        "start_remote_debugging_from_args(['--is-debug', 'true'], True, None)",
        "start_remote_debugging_from_args(is_debug=True)",
        "breakpoint(0, port=5678)",
    ],
)
async def test_calls_that_mean_nothing(call: str) -> None:
    """No call raises an exception, whatever its arguments are."""
    status, out, _ = await run_job(f"import relay_agent\nprint(relay_agent.{call})\n")
    assert status == 0
    assert out in (["False"], ["None"])


@pytest.mark.job
async def test_unknown_arguments_of_a_breakpoint() -> None:
    """In a debug run, one sentence shows the right call; in another run, the call has no effect."""
    code = "import relay_agent\nrelay_agent.breakpoint(0, port=5678)\nprint('done')"
    assert (0, ["done"], "") == await run_job(code)
    status, out, err = await run_job(code, "--is-debug", *ARGUMENTS, RELAY_CONNECTION_STRING="invalid")
    assert (0, ["done"]) == (status, out)
    assert f"warning: breakpoint{UNKNOWN}; call it as breakpoint(rank=RANKS, when=CONDITION, hold=SECONDS)\n" in err
