"""Facts about descriptors whose numbers the job may use for its own files."""

import os
from pathlib import Path

import pytest

from relay_agent.job.own_descriptor import OwnDescriptor
from tests.support.jobs.processes import run_job


def test_number_that_the_job_uses(tmp_path: Path) -> None:
    """A descriptor is closed if it still refers to what was opened, and left alone if it is a file of the job."""
    number = os.open(tmp_path / "ours", os.O_RDWR | os.O_CREAT)
    descriptor = OwnDescriptor(number)
    assert (number, True) == (descriptor.number, descriptor.is_own)
    other = os.open(tmp_path / "the job's", os.O_RDWR | os.O_CREAT)
    os.dup2(other, number)
    descriptor.close()
    assert not descriptor.is_own
    assert os.write(number, b"weights") == 7
    again = OwnDescriptor(number)
    again.close()
    assert not again.is_own
    os.close(other)


@pytest.mark.skipif(os.name != "posix", reason="descriptors are moved on POSIX systems")
async def test_number_of_a_standard_stream(tmp_path: Path) -> None:
    """What gets the number of a closed standard stream is moved, and closed at exec; any other number stays."""
    code = f"""
        import os
        from relay_agent.job.own_descriptor import above_streams
        path = {str(tmp_path / "file")!r}
        os.close(0)
        low = os.open(path, os.O_WRONLY | os.O_CREAT)
        high = above_streams(low)
        print(low, high > 2, os.path.exists("/proc/self/fd/0"), os.get_inheritable(high), above_streams(high) == high)
        os.write(high, b"ours")
    """
    assert await run_job(code) == (0, ["0 True False False True"], "")
    assert (tmp_path / "file").read_bytes() == b"ours"
