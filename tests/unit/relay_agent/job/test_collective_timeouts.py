"""Timeouts of collective communication that are raised for a debug run, where no torch is needed to see it."""

import textwrap
from pathlib import Path

import pytest

from relay_agent.job.collective_timeouts import timeout_variables
from tests.support.jobs.processes import run_job

DAY = 86400


def test_the_variables_are_raised_in_their_own_units():
    """DeepSpeed counts minutes, the others seconds; a limit that is off by default is not switched on."""
    expected = {
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "86400",
        "DEEPSPEED_TIMEOUT": "1440",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "86400",
    }
    assert expected == timeout_variables(DAY, {})


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("DEEPSPEED_TIMEOUT", "30", "1440"),
        ("DEEPSPEED_TIMEOUT", "2880", None),
        ("DEEPSPEED_TIMEOUT", "1440", None),
        ("DEEPSPEED_TIMEOUT", "soon", None),
        ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "60", "86400"),
        ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "0", None),
        ("HOROVOD_GLOO_TIMEOUT_SECONDS", "", "86400"),
    ],
)
def test_a_variable_that_is_set_is_never_lowered(name: str, text: str, expected: str | None):
    """A longer limit stays, and so does a text that is not ours to judge."""
    assert expected == timeout_variables(DAY, {name: text}).get(name)


def test_a_part_of_a_minute_counts_as_a_whole_one():
    """No limit is below what was asked for."""
    assert timeout_variables(61, {})["DEEPSPEED_TIMEOUT"] == "2"


def fake_torch(directory: Path, distributed_c10d: str) -> str:
    """Make a package that has torch's names, and return its place."""
    package = directory / "torch" / "distributed"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").write_text("from .distributed_c10d import *\n")
    (package / "distributed_c10d.py").write_text(textwrap.dedent(distributed_c10d))
    return str(directory)


C10D = """
    from datetime import timedelta

    __all__ = ["init_process_group"]

    class Store:
        timeout = timedelta(seconds=3)
        def set_timeout(self, timeout):
            self.timeout = timeout

    def _get_default_timeout(backend):
        return timedelta(seconds=1800)

    def _new_process_group_helper(size, rank, ranks, backend, store, group_name, backend_options=None, timeout=None):
        return timeout, store.timeout

    def init_process_group(backend, timeout=None):
        timeout = timeout or _get_default_timeout(backend)
        return _new_process_group_helper(2, 0, [], backend, Store(), "0", None, timeout)
"""


async def test_a_process_group_gets_at_least_the_timeout(tmp_path: Path):
    """By default, with a shorter timeout of its own and with a longer one; its store gets it too."""
    code = """
        import sys
        from datetime import timedelta
        sys.path.insert(0, sys.argv[1])
        from relay_agent.job.collective_timeouts import raise_timeouts
        raise_timeouts(7200)
        from torch.distributed import init_process_group
        for timeout in None, timedelta(seconds=3), timedelta(days=3):
            print(*(value.total_seconds() for value in init_process_group("gloo", timeout)))
    """
    status, out, err = await run_job(code, fake_torch(tmp_path, C10D))
    assert (0, ["7200.0 7200.0", "7200.0 7200.0", "259200.0 7200.0"], "") == (status, out, err)


async def test_torch_is_not_imported_for_it():
    """Raising timeouts waits for the job to import torch."""
    code = """
        import sys
        from relay_agent.job.collective_timeouts import raise_timeouts
        raise_timeouts()
        print(sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "numpy", "asyncio", "inspect"}))
    """
    assert (0, ["[]"], "") == await run_job(code)


async def test_the_import_system_is_left_as_it_was(tmp_path: Path):
    """Once the module is there nothing of the hook remains, and its source can be found."""
    code = """
        import inspect, sys
        sys.path.insert(0, sys.argv[1])
        before = list(sys.meta_path)
        from relay_agent.job.collective_timeouts import raise_timeouts
        raise_timeouts(10)
        raise_timeouts(20)
        print(len(sys.meta_path) - len(before))
        from torch.distributed import distributed_c10d as c10d
        print(sys.meta_path == before, "exec_module" in vars(c10d.__loader__))
        print("def init_process_group" in inspect.getsource(c10d), c10d._get_default_timeout("gloo"))
    """
    status, out, err = await run_job(code, fake_torch(tmp_path, C10D))
    assert (0, ["1", "True False", "True 0:30:00"], "") == (status, out, err)


async def test_a_torch_without_these_internals_works_and_is_reported(tmp_path: Path):
    """One sentence on stderr, and the job continues."""
    code = """
        import sys
        sys.path.insert(0, sys.argv[1])
        from relay_agent.job.collective_timeouts import raise_timeouts
        raise_timeouts()
        from torch.distributed import init_process_group
        print(init_process_group())
    """
    c10d = "__all__ = ['init_process_group']\ndef init_process_group(): return 'made'\n"
    status, out, err = await run_job(code, fake_torch(tmp_path, c10d))
    assert (0, ["made"]) == (status, out)
    expected = "relay-agent: cannot raise the timeouts of process groups: unsupported version of torch\n"
    assert expected == err


async def test_an_import_that_fails_can_be_tried_again(tmp_path: Path):
    """The hook is still there for the second attempt."""
    code = """
        import os, sys
        sys.path.insert(0, sys.argv[1])
        from relay_agent.job.collective_timeouts import raise_timeouts
        raise_timeouts(7200)
        for attempt in "first", "second":
            try:
                from torch.distributed import init_process_group
            except ImportError as error:
                print(error)
                os.environ["READY"] = "1"
        print(init_process_group("gloo")[0])
    """
    unready = "import os\nif 'READY' not in os.environ: raise ImportError('not ready')\n" + textwrap.dedent(C10D)
    status, out, err = await run_job(code, fake_torch(tmp_path, unready))
    assert (0, ["not ready", "2:00:00"], "") == (status, out, err)


async def test_a_module_that_is_already_there_is_changed_at_once(tmp_path: Path):
    """Its groups cannot be found in this one, which is reported; new ones get the timeout."""
    code = """
        import sys
        sys.path.insert(0, sys.argv[1])
        from torch.distributed import init_process_group
        from relay_agent.job.collective_timeouts import raise_timeouts
        raise_timeouts(7200)
        print(init_process_group("gloo")[0])
    """
    status, out, err = await run_job(code, fake_torch(tmp_path, C10D))
    assert (0, ["2:00:00"]) == (status, out)
    assert "could not raise all torch.distributed timeouts: AttributeError: " in err
