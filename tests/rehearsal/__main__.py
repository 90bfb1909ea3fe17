"""`python -m tests.rehearsal` (`make rehearse-azure`): follows docs/guides/azure.md against stand-ins for Azure.

It prints a line for each step, then each failure that can be provoked here, with what the program printed and whether
the documents state that, and at last what only Azure can show. It exits with 0 if everything was as documented.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import io
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.rehearsal.failures import provoke
from tests.rehearsal.guide import CLEAN_UP, GUIDE, Shell
from tests.rehearsal.walk import Walk
from tests.samples.kit import ROOT
from tests.support.azure.az_shim.kit import FakeAzure
from tests.support.azure.network import clean_environment

LAST = 6000
"""How many characters of the programs' output are printed after a failure."""


async def rehearse(walk: Walk) -> None:
    """Follow the page; a step that fails ends it, because the next ones need it."""
    line = walk.report.line
    line("Nothing here is Azure: az, Entra ID, Key Vault and the managed identity are stand-ins of the tests, and")
    line("relay-server takes the place of Azure Relay. infra/, relay-client, the agent and debugpy are real.")
    line("\nThe steps of docs/guides/azure.md")
    await walk.create()
    await walk.debug()
    line("\nFailures, as the documents describe them")
    await provoke(walk)
    await walk.clean_up()
    line("\nNot rehearsed, because only Azure can show it")
    for row in walk.documents.not_compared:
        line(f"  {row.document.relative_to(ROOT)}: {row.subject}")
    for command in CLEAN_UP.splitlines()[1:]:
        line(f"  {GUIDE.relative_to(ROOT)}: {command}")


def main() -> int:
    """Rehearse, and return 0 if everything was as documented."""
    if importlib.util.find_spec("azure.ai") is None:
        sys.exit("error: azure-ai-ml is not installed. hint: make rehearse-azure installs it")
    started, output = time.monotonic(), io.StringIO()
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as name, pytest.MonkeyPatch.context() as patch:
        clean_environment(patch)
        folder = Path(name)
        with FakeAzure(folder) as azure:
            walk = Walk(Shell(azure, folder), folder)
            with contextlib.redirect_stdout(output):
                is_complete = _completes(walk)
    if walk.report.wrong:
        print(f"\nWhat the programs printed:\n{output.getvalue()[-LAST:]}")
    done, wrong = walk.report.steps, walk.report.wrong
    print(f"\n{done} steps in {time.monotonic() - started:.0f} s, {wrong} not as documented", end="")
    print("" if is_complete else "; the rest was not run")
    return 0 if is_complete and not wrong else 1


def _completes(walk: Walk) -> bool:
    try:
        asyncio.run(rehearse(walk))
    except AssertionError as error:
        print(error)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
