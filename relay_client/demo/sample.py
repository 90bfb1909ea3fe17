"""The training script that the demo debugs, and the places in it that the story stops at."""

from __future__ import annotations

from pathlib import Path

from relay_client.demo.checks import DemoFailed

__all__ = ["Sample", "find_sample"]


class Sample:
    """`train.py` as it lies on the developer's machine; the job runs a copy of it in another folder."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.script = directory / "train.py"
        self._lines = self.script.read_text(encoding="utf-8").splitlines()

    def __repr__(self) -> str:
        return f"<Sample {self.script}>"

    def line_of(self, code: str) -> int:
        """Return the number of the one line that holds `code`.

        Raises:
            DemoFailed: the sample was changed and does not hold it once.
        """
        found = [number for number, line in enumerate(self._lines, start=1) if code in line]
        if len(found) != 1:
            raise DemoFailed(f"'{code}' is in {len(found)} lines of {self.script}, not in one", hint="restore it")
        return found[0]


def find_sample() -> Sample:
    """Return the sample of this installation: in a checkout beside the packages, in a wheel beside this file.

    Raises:
        DemoFailed: it is in neither place.
    """
    here = Path(__file__).resolve().parent
    for directory in (here / "plain_python", here.parents[1] / "samples" / "plain_python"):
        if (directory / "train.py").is_file():
            return Sample(directory)
    raise DemoFailed("the sample plain_python is missing from this installation", hint="install relay-debug again")
