"""Facts about descriptors whose numbers the job may use for its own files."""

import os
from pathlib import Path

from relay_agent.own_descriptor import OwnDescriptor


def test_number_that_the_job_uses(tmp_path: Path) -> None:
    """A descriptor is closed if it still refers to what was opened, and left alone if it is a file of the job."""
    number = os.open(tmp_path / "ours", os.O_RDWR | os.O_CREAT)
    descriptor = OwnDescriptor(number)
    assert f"<OwnDescriptor {number} own>" == repr(descriptor)
    other = os.open(tmp_path / "the job's", os.O_RDWR | os.O_CREAT)
    os.dup2(other, number)
    descriptor.close()
    assert f"<OwnDescriptor {number} lost>" == repr(descriptor)
    assert os.write(number, b"weights") == 7
    again = OwnDescriptor(number)
    again.close()
    assert not again.is_own
    os.close(other)
