"""What holds for every test: nothing it starts outlives it, and nothing it writes shows a secret."""

import asyncio
import gc
import logging
import os
import signal
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import hypothesis
import psutil
import pytest
import pytest_asyncio

from relay_core.program.run import VARIABLE
from tests.support.azure.cloud.cli import RealAz, is_installed, loaded_az
from tests.support.jobs.loaded_torch import loaded_torch
from tests.support.machine import secrets
from tests.support.machine.deadline import DEADLINE
from tests.support.network.relay import LocalRelay, local_relay

RUN_VARIABLE = "TESTS_RUN_ID"
"""In the environment of all that this run starts."""
TASKS = Path("/proc/self/task")
"""The threads of this process, each with the children that it has started (proc(5))."""


# A test that fails because the machine is busy shows nothing, so neither an example nor its data has a deadline. Each
# run of a test tries the same examples, so that the result depends only on the code; `make fuzz` searches for others.
hypothesis.settings.register_profile(
    "same", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], derandomize=True
)
hypothesis.settings.register_profile(
    "search",
    hypothesis.settings.get_profile("same"),
    max_examples=2000,
    derandomize=False,
    database=hypothesis.database.DirectoryBasedExampleDatabase(".hypothesis/examples"),
)
hypothesis.settings.load_profile("same")


def pytest_configure() -> None:
    """Let programs of tests receive signals that a shell makes this run ignore: `make test &`, `nohup make test`."""
    for name in ("SIGINT", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)  # handlers are not inherited, as ignoring is


if os.environ.get(VARIABLE) == "asyncio":
    # Programs use asyncio's event loop in such a run, and uvloop in others. The tests' own loop is the other one each
    # time, so that both runs together cover all code with both.
    import uvloop

    def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
        """Return the event loop for tests, by name (pytest-asyncio)."""
        return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="module", autouse=True)
def _older_objects_are_not_walked() -> None:
    """Keep what exists before a module's tests out of their `gc.collect()`: it takes 60 ms with it and 1 ms without."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_secret_in_any_output(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Fail a test whose log records (at DEBUG, of all libraries) or output contain a key, a token or a signature."""
    handler = secrets.RecordingHandler()
    root = logging.getLogger()
    previous = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(previous)
    captured = capfd.readouterr()
    secrets.check(*handler.lines, captured.out, captured.err)


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Undo `configure_logging` of a command line that ran in this process: the next test's log would be hidden."""
    yield
    for name in ("relay_core", "relay_agent", "relay_client", "relay_server"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a thread or a child process."""
    threads = set(threading.enumerate())
    children = _children()
    yield
    gc.collect()
    left_threads = {t for t in set(threading.enumerate()) - threads if not t.name.startswith("asyncio_")}
    for thread in left_threads:
        thread.join(DEADLINE)
    assert not [thread.name for thread in left_threads if thread.is_alive()]
    left_children = [child for child in _children() if not _is_older(child, children)]
    assert not psutil.wait_procs(left_children, timeout=DEADLINE)[1], "a child process was left behind"


def _children() -> list[psutil.Process]:
    """Return the processes below this one; without direct children there are none, whoever else runs."""
    return psutil.Process(os.getpid()).children(recursive=True) if _has_children() else []


def _is_older(child: psutil.Process, known: list[psutil.Process]) -> bool:
    """Whether a process was there before a test, or belongs to one that was: a fixture's, such as a browser."""
    try:
        return child in known or any(parent in known for parent in child.parents())
    except psutil.NoSuchProcess:
        return True


def _has_children() -> bool:
    try:
        return any(path.read_bytes() for path in TASKS.glob("*/children"))
    except OSError:  # a thread has ended meanwhile
        return True


@pytest.fixture(scope="session", autouse=True)
def _no_orphans() -> Iterator[None]:
    """Fail the last test of a run if a process remains that left the tree of the test that started it, as agents do."""
    mark = uuid.uuid4().hex
    os.environ[RUN_VARIABLE] = mark
    yield
    del os.environ[RUN_VARIABLE]
    orphans = [process for process in psutil.process_iter() if _environment(process).get(RUN_VARIABLE) == mark]
    remaining = psutil.wait_procs(orphans, timeout=DEADLINE)[1]
    left = [f"{process}: {_environment(process).get('PYTEST_CURRENT_TEST')}" for process in remaining]
    for process in remaining:
        process.kill()
    assert not left


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:  # it has ended, or is not ours
        return {}


@pytest.fixture(scope="session")
def tls_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where relays keep their CA: made once, because keys take time."""
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="session")
def az(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealAz | None]:
    """The real Azure CLI, loaded once, because a start takes a second; None where it is not installed."""
    if not is_installed():
        yield None
        return
    with loaded_az(tmp_path_factory.mktemp("az")) as az:
        yield az


@pytest.fixture(scope="session")
def torch_import(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Torch, imported once for all ranks that are forked: an import takes two seconds."""
    with loaded_torch(tmp_path_factory.mktemp("torch")):
        yield


@pytest_asyncio.fixture
async def relay(tls_directory: Path) -> AsyncIterator[LocalRelay]:
    """A running relay with one hybrid connection."""
    async with local_relay(tls_directory) as running:
        yield running
