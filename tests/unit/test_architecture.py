"""Facts about the sources: what a reader of the folder list may rely on. The import contracts are in pyproject.toml."""

import ast
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("relay_agent", "relay_client", "relay_core", "relay_server")

MAX_MODULES = 12
"""Modules at the top of a package: as many as a reader takes in at once."""
LARGER: dict[str, str] = {}
"""Packages that have more, and why."""

MAX_GLOBALS = 3
"""`global` statements: the registration of faulthandler, the crash of a process, and its registration at its start."""


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def modules(package: Path) -> list[str]:
    return sorted(path.stem for path in package.glob("*.py") if not path.stem.startswith("__"))


def test_rooms_are_small():
    """No package has more than a dozen modules at its top, but for those with a reason."""
    large = {
        folder.relative_to(ROOT).as_posix()
        for folder in {path.parent for path in sources()}
        if len(modules(folder)) > MAX_MODULES
    }
    assert large == set(LARGER)


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*PACKAGES)


def cycles(graph: grimp.ImportGraph) -> Iterator[set[str]]:
    """Yield the groups of modules that import each other, by what is downstream of each and upstream as well."""
    for module in graph.modules:
        around = graph.find_upstream_modules(module) & graph.find_downstream_modules(module)
        if around - {module}:
            yield around | {module}


def test_no_module_imports_itself_in_a_roundabout_way(graph):
    """No two modules lead to each other, counting imports inside functions and under TYPE_CHECKING."""
    assert [] == list(cycles(graph))


def test_cycles_are_found(graph):
    """The search above sees a cycle if there is one."""
    graph.add_import(importer="relay_core.errors", imported="relay_core.net.tasks")
    graph.add_import(importer="relay_core.net.tasks", imported="relay_core.errors")
    assert {"relay_core.errors", "relay_core.net.tasks"} <= next(cycles(graph))


def test_global_statements_are_few():
    """State of a process is in objects: at most three functions assign to a global name."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Global)
    ]
    assert len(found) <= MAX_GLOBALS, found
