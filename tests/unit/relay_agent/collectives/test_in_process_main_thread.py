"""Facts about what the main thread of a job is found to be doing, by a helper thread of that job."""

import pytest

from tests.support.jobs.processes import run_job

pytestmark = pytest.mark.job

WATCHED = """\
    import hashlib
    import os
    import threading
    import time
    from relay_agent.collectives.in_process import activity

    def watch():
        time.sleep(0.2)
        print(activity(), flush=True)
        os._exit(0)

    threading.Thread(target=watch).start()
"""


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        ("time.sleep(3600)", "blocked"),
        ("threading.Event().wait()", "blocked"),
        ("while True:\n        pass", "running Python"),
        ("while True:\n        x = sum(range(10))", "running Python"),
        ("hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)", "running"),
    ],
    ids=["sleep", "lock", "empty loop", "loop with calls", "C code"],
)
async def test_activity(work: str, expected: str) -> None:
    """A thread that waits is blocked, one in a loop runs Python, and one in C code without the GIL runs."""
    assert (0, [expected], "") == await run_job(f"{WATCHED}\n    {work}\n")


async def test_stopped_by_a_debugger() -> None:
    """A thread that pydevd has marked as suspended is stopped."""
    code = """\
        import threading
        import debugpy._vendored.force_pydevd
        from _pydevd_bundle.pydevd_additional_thread_info import set_additional_thread_info
        from _pydevd_bundle.pydevd_constants import STATE_SUSPEND
        from relay_agent.collectives.in_process import activity

        info = set_additional_thread_info(threading.main_thread())
        info.pydev_state = STATE_SUSPEND
        print(activity())
    """
    status, lines, _ = await run_job(code)
    assert (0, ["stopped"]) == (status, lines)
