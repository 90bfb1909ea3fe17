"""`python -m tests.fuzz` (`make fuzz`): feeds every parser for some time, and prints what was found.

With atheris, which measures what a new input reaches, each parser runs in a process of its own under libFuzzer's limits
for memory and time; interesting inputs go to `build/fuzz/NAME`, and one that breaks a parser to `build/fuzz/NAME-...`.
Without it hypothesis mutates the corpus. A broken parser's input is added to `tests/fuzz/corpus` with the fix.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, given, settings

from tests.fuzz.inputs import CORPUS, corpus_of, mutations_of
from tests.fuzz.parsers import PARSERS

BUILD = Path("build/fuzz")
MEMORY_MB = 1024
SECONDS_PER_INPUT = 10
MAX_INPUT = 8192
"""Bytes."""
BATCH = 500
"""Examples of hypothesis between two looks at the clock."""


def main(argv: list[str]) -> int:
    """Run the parsers; return 1 if one is broken."""
    arguments = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Feeds parsers with hostile input.")
    arguments.add_argument("--seconds", type=float, default=30.0, help="for each parser (default: %(default)g)")
    arguments.add_argument("parsers", nargs="*", metavar="PARSER", help=f"one of {', '.join(PARSERS)}")
    chosen = arguments.parse_args(argv)
    unknown = set(chosen.parsers) - set(PARSERS)
    if unknown:
        arguments.error(f"unknown parser: {', '.join(sorted(unknown))}")
    has_atheris = importlib.util.find_spec("atheris") is not None
    print("inputs by", "atheris" if has_atheris else "hypothesis (atheris is not installed)", flush=True)
    run = _under_libfuzzer if has_atheris else _by_hypothesis
    broken = [name for name in chosen.parsers or PARSERS if not run(name, chosen.seconds)]
    print(f"broken: {', '.join(broken) or 'none'}")
    return 1 if broken else 0


def _under_libfuzzer(name: str, seconds: float) -> bool:
    found = BUILD / name
    found.mkdir(parents=True, exist_ok=True)
    limits = [f"-rss_limit_mb={MEMORY_MB}", f"-timeout={SECONDS_PER_INPUT}", f"-max_len={MAX_INPUT}"]
    options = [f"-max_total_time={seconds:.0f}", f"-artifact_prefix={found}-", "-print_final_stats=1", *limits]
    command = [sys.executable, "-m", "tests.fuzz.libfuzzer", name, *options, str(found), str(CORPUS / name)]
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    (BUILD / f"{name}.log").write_text(result.stdout + result.stderr)
    executions = [line.split()[-1] for line in result.stderr.splitlines() if "number_of_executed_units" in line]
    outcome = "ok" if result.returncode == 0 else f"BROKEN, see {BUILD / name}.log"
    print(f"{name:20} {executions[0] if executions else 'no':>10} inputs  {outcome}", flush=True)
    return result.returncode == 0


def _by_hypothesis(name: str, seconds: float) -> bool:
    until, inputs = time.monotonic() + seconds, 0

    @settings(max_examples=BATCH, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(mutations_of(corpus_of(name)))
    def run(data: bytes) -> None:
        nonlocal inputs
        inputs += 1
        PARSERS[name](data)

    try:
        while time.monotonic() < until:
            run()
    except Exception as error:  # noqa: BLE001 - any error means that the parser is broken
        print(f"{name:20} {inputs:>10} inputs  BROKEN: {error!r}", flush=True)
        return False
    print(f"{name:20} {inputs:>10} inputs  ok", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
