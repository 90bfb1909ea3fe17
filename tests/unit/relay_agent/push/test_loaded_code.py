"""Facts about what of a file is running in this process."""

import asyncio
import contextlib
import gc
import importlib.machinery
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from relay_agent.push.loaded_code import (
    all_functions,
    calls_outside_loops,
    find_modules,
    functions_beside_users,
    functions_of,
    suspended_frames,
)
from relay_core.errors import ConfigurationError
from tests.support.jobs.loaded_module import Load
from tests.support.jobs.processes import run_job


def loaded(monkeypatch: pytest.MonkeyPatch, name: str, path: Path) -> ModuleType:
    """Return a module that was loaded from a path."""
    module = ModuleType(name)
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, name, module)
    return module


def test_modules_of_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """All modules that were loaded from a file are found, also through a link."""
    modules = [loaded(monkeypatch, name, tmp_path / "push_me.py") for name in ("push_me", "package.push_me")]
    (tmp_path / "push_me.py").touch()
    (tmp_path / "link.py").symlink_to(tmp_path / "push_me.py")
    assert modules == find_modules(str(tmp_path / "push_me.py"))
    assert modules == find_modules(str(tmp_path / "link.py"))


@pytest.mark.parametrize("suffix", importlib.machinery.EXTENSION_SUFFIXES)
def test_c_extension(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, suffix: str):
    """A module that was compiled to a C extension is refused by its name."""
    loaded(monkeypatch, "push_me", tmp_path / f"push_me{suffix}")
    with pytest.raises(ConfigurationError, match=r"push_me\S* is a C extension, which cannot be replaced"):
        find_modules(str(tmp_path / "push_me.py"))


def test_file_that_is_not_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The hint names loaded files of the same name, but none of relay-agent or a library; or else, it is about --as.

    If the file is the only path, the user has given it with --as.
    """
    with pytest.raises(ConfigurationError, match="no module was loaded from swap.py") as refused:
        find_modules("swap.py", ["/laptop/swap.py"])
    assert "use --as to name the file on the node" == refused.value.hint
    with pytest.raises(ConfigurationError) as refused:
        find_modules("swap.py")
    assert (
        "check the path after --as: absolute, or relative to the directory in which the job was started"
    ) == refused.value.hint
    loaded(monkeypatch, "push_me", tmp_path / "push_me.py")
    with pytest.raises(ConfigurationError) as refused:
        find_modules("other/push_me.py")
    assert f"the job has loaded {tmp_path / 'push_me.py'}; use --as to name one of them" == refused.value.hint


def test_program_that_has_not_started(monkeypatch: pytest.MonkeyPatch):
    """Before the program's file is executed, as while the process waits for a debugger, no path on the node helps."""
    monkeypatch.setattr(sys, "orig_argv", ["python", "plain.py"])
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    with pytest.raises(ConfigurationError, match=r"the program has not started yet, and has not loaded plain.py"):
        find_modules("plain.py")
    monkeypatch.setattr(sys, "orig_argv", ["python", "-c", "pass"])
    with pytest.raises(ConfigurationError, match=r"no module was loaded from plain.py"):
        find_modules("plain.py")


def test_modules_without_a_usable_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Objects in `sys.modules` that raise exceptions do not matter."""

    class Strange(ModuleType):
        @property
        def __file__(self) -> str:  # type: ignore[override]
            raise RuntimeError("lazy")

    monkeypatch.setitem(sys.modules, "strange", Strange("strange"))
    with pytest.raises(ConfigurationError):
        find_modules(str(tmp_path / "strange.py"))


def test_first_path_that_was_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Of several paths, the first one that was loaded counts, whatever the names of links to it are."""
    first, second = (loaded(monkeypatch, name, tmp_path / f"{name}.py") for name in ("push_a", "push_b"))
    (tmp_path / "push_a.py").touch()
    (tmp_path / "link.py").symlink_to(tmp_path / "push_a.py")
    through = loaded(monkeypatch, "link", tmp_path / "link.py")
    paths = [str(tmp_path / name) for name in ("absent.py", "link.py", "push_b.py")]
    assert [first, through] == find_modules("push_b.py", paths)
    assert [second] == find_modules(str(tmp_path / "push_b.py"), paths[:1])


def test_functions_beside_users_of_a_name():
    """They are all named functions of a file in which a function, or one inside it, has the name; no library's."""
    source = "class A:\n    def f(self): return [lambda: self.push_rate]\ndef g(): return 1\nh = lambda: 1\n"
    files = ("job.py", "/usr/lib/python3/site-packages/a.py")
    names: list[dict[str, object]] = [{}, {}]
    for file, each in zip(files, names, strict=True):
        exec(compile(source, file, "exec"), each)
    assert ["A.f", "g"] == sorted(functions_beside_users({"push_rate"}).values())
    assert {} == functions_beside_users({"push_other"})


def test_search_runs_no_code_of_the_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Objects that compute their class are not asked for it, in modules and in `sys.modules`."""

    class Lazy:
        @property
        def __class__(self) -> type:  # type: ignore[override]
            raise RuntimeError("deprecated")

    module = loaded(monkeypatch, "lazy", tmp_path / "lazy.py")
    module.value = Lazy()  # type: ignore[attr-defined]
    module.here = here  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lazier", Lazy())  # type: ignore[arg-type]
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 1)
    monkeypatch.setattr(gc, "get_objects", lambda _generation: [])
    assert here is all_functions()[id(here)]


def here(found: list[str]) -> None:
    """Collect the names of the calls outside of loops, from the function of the thread on."""
    names = [frame.f_code.co_name for frame in calls_outside_loops(sys._getframe())]
    found += names[names.index("run") + 1 :]


def once(found: list[str]) -> None:
    for _ in range(2):
        pass
    here(found)


def repeated(found: list[str]) -> None:
    for _ in range(1):
        here(found)


def retried(found: list[str]) -> None:
    while True:
        try:
            here(found)
        except ValueError:
            continue
        return


def entered(found: list[str]) -> None:
    with contextlib.suppress(ValueError):
        found.clear()
    try:
        found.clear()
    except ValueError:
        found.append("")
    here(found)


def finished(found: list[str]) -> None:
    try:
        here(found)
    finally:
        for _ in range(2):
            pass


def waiting(found: list[str]) -> None:
    async def awaited() -> None:
        here(found)

    async def outer() -> None:
        for _ in range(1):
            await awaited()

    with contextlib.suppress(StopIteration):
        outer().send(None)


def awaiting(found: list[str]) -> None:
    async def awaited() -> None:
        here(found)

    async def outer() -> None:
        await awaited()

    with contextlib.suppress(StopIteration):
        outer().send(None)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (once, ["once", "here"]),
        (repeated, ["repeated"]),
        (retried, ["retried"]),
        (entered, ["entered", "here"]),
        (finished, ["finished", "here"]),
        (awaiting, ["awaiting", "outer", "awaited", "here"]),
        (waiting, ["waiting", "outer"]),
    ],
)
def test_calls_outside_loops(function: Callable[[list[str]], None], expected: list[str]):
    """Calls are not repeated by their callers if none of these is in a loop now; an `await` is not a loop."""
    found: list[str] = []
    thread = threading.Thread(target=function, args=(found,))  # without the loops of pytest
    thread.start()
    thread.join()
    assert expected == found


def test_functions_of_a_running_file(load: Load) -> None:
    """Only functions are found, and not the code of a class and of the top level that is being executed."""
    loaded, found = load(""), []
    loaded.module.here = lambda: found.extend(functions_of(str(loaded.path)))  # type: ignore[attr-defined]
    loaded.execute("def f(): pass\nclass A:\n    here()\n")
    assert ["f"] == found


SEARCH = """
    import threading, time
    from relay_agent.push.loaded_code import all_functions

    ballast = [[each] for each in range(500_000)]
    is_over = False

    def search():
        global is_over
        for _ in range(20):
            all_functions()
        is_over = True

    def slow(each):
        time.sleep(0.001)
        return each

    threading.Thread(target=search).start()
    while not is_over:
        tuple(slow(each) for each in range(33))
    print("alive")
"""


async def test_search_while_a_tuple_is_made() -> None:
    """A thread that makes a tuple of a generator is not disturbed: the tuple must have no other reference."""
    assert (0, ["alive"], "") == await run_job(SEARCH)


def test_suspended_frames() -> None:
    """Generators and coroutines are found by their code, whether they have begun or not, until they end."""

    def numbers() -> Generator[int, None, None]:
        yield 1

    async def waiting() -> None:
        await asyncio.sleep(0)

    new, begun, coroutine = numbers(), numbers(), waiting()
    next(begun)
    coroutine.send(None)
    found = suspended_frames([numbers.__code__, waiting.__code__, once.__code__])
    assert {"numbers", "waiting"} == {frame.f_code.co_name for frame in found}
    assert 3 == len(found)
    coroutine.close()
    new.close()
    assert [begun.gi_frame] == suspended_frames([numbers.__code__, waiting.__code__])


def test_async_generator_that_awaits() -> None:
    """One that awaits something is suspended, although it is marked as running; one that is executed is not."""
    found: list[list[Any]] = []

    async def steps() -> AsyncGenerator[int, None]:
        found.append(suspended_frames([steps.__code__]))
        await asyncio.sleep(0)
        yield 1

    generator = steps()
    begun = generator.__anext__()
    begun.send(None)
    assert [[], [generator.ag_frame]] == [*found, suspended_frames([steps.__code__])]
    begun.close()
