"""Facts about files with breakpoints that are not what the job has loaded."""

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relay_agent.debuggee.unreached.breakpoints import describe_other_file

Load = Callable[..., Path]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Write the files of a package or module, and import it."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)

    def load(name: str, text: str = "def step():\n    return 1\n") -> Path:
        path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(exist_ok=True)
        if path.parent != tmp_path:
            (path.parent / "__init__.py").touch()
        path.write_text(text)
        importlib.invalidate_caches()
        importlib.import_module(name)
        return path

    yield load
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_loaded_file(load: Load) -> None:
    """Nothing is reported about the file of a module, also in a package."""
    assert "" == describe_other_file(str(load("relay_test_model")))
    path = load("relay_test_package.model")
    assert "" == describe_other_file(str(path))
    assert "" == describe_other_file(str(path.with_name("__init__.py")))


def test_relative_path(load: Load, tmp_path: Path) -> None:
    """It is the file if it may be: the job may have changed its directory since."""
    path = load("relay_test_model")
    vars(sys.modules["relay_test_model"]).clear()
    sys.modules["relay_test_model"].__file__ = f"{tmp_path.name}/relay_test_model.py"
    assert "" == describe_other_file(str(path))
    assert describe_other_file(str(tmp_path / "other" / "relay_test_model.py")) is not None


def test_file_that_is_not_loaded_yet(load: Load, tmp_path: Path) -> None:
    """Nothing is known about it, even if a module in another package has the same name."""
    load("relay_test_package.model")
    assert describe_other_file(str(tmp_path / "model.py")) is None
    assert describe_other_file(str(tmp_path / "other" / "model.py")) is None


def test_other_file_with_the_same_module_name(load: Load, tmp_path: Path) -> None:
    """The module and its file are named."""
    path = load("relay_test_package.model")
    other = tmp_path / "checkout" / "relay_test_package" / "model.py"
    assert describe_other_file(str(other)) == (
        f"breakpoints in {other} are not hit in module relay_test_package.model, which was loaded from {path}. "
        "hint: set the breakpoints in that file, or correct pathMappings in launch.json"
    )


def test_compiled_module(tmp_path: Path) -> None:
    """The source of a module that was compiled to machine code is not run."""
    psutil = importlib.import_module("psutil")
    extension = importlib.import_module(psutil._psplatform.cext.__name__)
    source = tmp_path / "psutil" / f"{extension.__name__.rpartition('.')[2]}.py"
    assert str(describe_other_file(str(source))).endswith(
        "hint: run the source instead of the compiled module while you debug"
    )


def test_standard_library(tmp_path: Path) -> None:
    """A file of the job that is named like a module of the standard library may belong to a package."""
    assert describe_other_file(str(tmp_path / "queue.py")) is None
    assert describe_other_file(str(tmp_path / "os" / "path.py")) is None


def test_file_in_a_package(load: Load, tmp_path: Path) -> None:
    """It is not compared with a module of the same name outside the package."""
    load("relay_test_model")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    assert describe_other_file(str(tmp_path / "package" / "relay_test_model.py")) is None
    assert describe_other_file(str(tmp_path / "other" / "relay_test_model.py")) is not None


def test_main_module(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job's script counts as what it would be imported as; with `-m`, Python records that name."""
    path = load("relay_test_train")
    module = sys.modules.pop("relay_test_train")
    monkeypatch.setitem(sys.modules, "__main__", module)
    assert "" == describe_other_file(str(path))
    other = tmp_path / "checkout" / "relay_test_train.py"
    assert f"not hit in the job's main module, which was loaded from {path}" in str(describe_other_file(str(other)))
    module.__spec__ = None
    assert f"not hit in the job's main module, which was loaded from {path}" in str(describe_other_file(str(other)))
    assert describe_other_file(str(tmp_path / "checkout" / "relay_test_other.py")) is None


def test_code_that_was_compiled_elsewhere(load: Load, tmp_path: Path) -> None:
    """The path in the code counts, too: it is the one with which breakpoints are compared."""
    load("relay_test_model")
    other = tmp_path / "build" / "relay_test_model.py"
    exec(compile("def step():\n    return 1\n", str(other), "exec"), vars(sys.modules["relay_test_model"]))
    assert "" == describe_other_file(str(other))


def test_objects_in_place_of_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """No code of such an object runs, nor that of a module with its own attribute access."""

    class Lazy(type(sys)):  # type: ignore[misc] # the type of modules
        def __getattribute__(self, name: str) -> object:
            raise AssertionError(name)

    monkeypatch.setitem(sys.modules, "relay_test_lazy", Lazy("relay_test_lazy"))
    monkeypatch.setitem(sys.modules, "relay_test_object", object())  # type: ignore[arg-type] # allowed at run time
    assert describe_other_file("/job/relay_test_lazy.py") is None
    assert describe_other_file("/job/relay_test_object.py") is None
