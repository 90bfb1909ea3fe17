"""Facts about work of debugpy at its start that nobody needs, and for which an editor would wait."""

from pathlib import Path

from tests.support.debuggers.armed import armed
from tests.support.jobs.processes import run_job


async def test_installed_packages_are_not_read():
    """The job does not read the metadata of the installed packages for debugpy's log, which is off."""
    code = """
        import importlib.metadata
        importlib.metadata.distributions = lambda **_: print("packages are listed") or []
        from relay_agent.debuggee.debugger import debugger
        print(debugger.arm() > 0)
    """
    assert (0, ["True"], "") == await run_job(code)


async def test_logs_describe_the_environment(tmp_path: Path):
    """If debugpy's log is on, the logs of the job and of the adapter list the installed packages."""
    status, _, _ = await run_job(armed(""), DEBUGPY_LOG_DIR=str(tmp_path))
    assert 0 == status
    logs = {path.name.partition("-")[0]: path.read_text() for path in tmp_path.iterdir()}  # noqa: ASYNC240 - no other task
    for program in ("server", "adapter"):
        assert "Installed packages:" in logs[f"debugpy.{program}"]


async def test_no_pause():
    """Pydevd does not sleep while the debugger is started, and its later sleeps are as they were."""
    code = """
        import time
        from relay_agent.debuggee.debugger import debugger
        thread = __import__("threading").get_ident()
        sleep = time.sleep
        def slept(seconds):
            if __import__("threading").get_ident() == thread:
                print("a pause of", seconds)
            sleep(seconds)
        time.sleep = slept
        debugger.arm()
        import pydevd
        pydevd.time.sleep(0.001)
    """
    assert (0, ["a pause of 0.001"], "") == await run_job(code)


async def test_other_threads_sleep():
    """Only the thread that starts the debugger does not sleep."""
    code = """
        import sys, threading, time
        from relay_agent.debuggee.debugpy_start import _without_pause, load
        load(follow_children=False)
        with _without_pause():
            without_pause = sys.modules["pydevd"].time
        without_pause.sleep(3600)
        slept = []
        thread = threading.Thread(target=lambda: slept.append((time.monotonic(), without_pause.sleep(0.01))))
        thread.start()
        thread.join()
        print(time.monotonic() - slept[0][0] >= 0.01, without_pause.monotonic is time.monotonic)
    """
    assert (0, ["True True"], "") == await run_job(code)
