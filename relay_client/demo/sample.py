"""The training script that the demo debugs, and the line numbers of code in it."""

from __future__ import annotations

from pathlib import Path

from relay_client.demo.checks import DemoFailed

__all__ = ["Sample", "find_sample"]


class Sample:
    """`train.py` on the developer's machine; the job runs a copy of it in another directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.script = directory / "train.py"
        self._lines = self.script.read_text(encoding="utf-8").splitlines()

    def __repr__(self) -> str:
        return f"<Sample {self.script}>"

    def line_of(self, code: str) -> int:
        """Return the number of the only line that contains `code`.

        Raises:
            DemoFailed: no line, or more than one line, contains `code`, because the sample was changed.
        """
        found = [number for number, line in enumerate(self._lines, start=1) if code in line]
        if len(found) != 1:
            raise DemoFailed(
                f"'{code}' is on {len(found)} lines of {self.script}; expected exactly one",
                hint="restore the original file",
            )
        return found[0]


def find_sample() -> Sample:
    """Return the sample of this installation: next to the packages in a checkout, next to this file in a wheel.

    Raises:
        DemoFailed: it is missing.
    """
    here = Path(__file__).resolve().parent
    for directory in (here / "plain_python", here.parents[1] / "samples" / "plain_python"):
        if (directory / "train.py").is_file():
            return Sample(directory)
    raise DemoFailed("the sample plain_python is missing from this installation", hint="reinstall relay-debug")
