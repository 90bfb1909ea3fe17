"""Facts about the source files themselves: imports, public names, sizes."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from itertools import pairwise
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PACKAGES = ("relay_core", "relay_agent", "relay_client", "relay_server")
MAX_LINES = 600
MAX_WIDTH = 120
ROW = re.compile(r"# {4,}(?=\S.* {3,}\S)")
"""The start of a row of a table in a comment."""
GAP = re.compile(r"(?<=\S) {3,}(?=\S)")
"""Between two cells of a table."""
PICTURE = set("|^+<={}#")
"""Characters of arrows, boxes and code."""
HEAVY = {
    "asyncio",
    "cryptography",
    "debugpy",
    "multiprocessing",
    "socket",
    "ssl",
    "subprocess",
    "threading",
    "websockets",
}
"""What a job does not pay for by `import relay_agent`."""
MAX_MODULES = 60
"""That `import relay_agent` loads, the standard library's included; it was 43 when this was written."""
EXTRAS = ("server", "client", "fast", "mcp")
"""Which users install."""
OTHER_IMPORTS = {
    "_pydev_bundle": "debugpy",
    "_pydevd_bundle": "debugpy",
    "_pydevd_frame_eval": "debugpy",
    "pydevd": "debugpy",
    "pydevd_file_utils": "debugpy",
    "pydevd_tracing": "debugpy",
    "_relay_debug_programs": "relay_agent/inject",
    "mlflow": "the job, or the user's environment",
    "tensorboard": "the user's environment",
    "pydantic": "mcp",
}
"""What comes with something else."""
RUNS_WHEN_IMPORTED = (
    "relay_agent/inject/",
    "relay_agent/debuggee/pydevd_patches/child_plugin/",
    "relay_agent/debuggee/adapter_guard/",
    "__main__.py",
)
"""Interpreters and pydevd import these by name, each with a search path of its own."""

IMPORT_EACH = """
import importlib, json, sys, traceback

def forget():
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]

package, names = json.loads(sys.stdin.read())
failures = {}
for name in names:
    forget()
    try:
        importlib.import_module(name)
    except Exception:
        failures[name] = traceback.format_exc()
print(json.dumps(failures))
"""


def source_files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("package", PACKAGES)
def test_each_module_can_be_imported_first(package: str) -> None:
    """No module needs another one of its package to be imported before it; other packages are loaded only once.

    None of ours imports a package that imports it, so for each module of another one its own package's run is enough.
    """
    files = [path for path in source_files(package) if not any(part in str(path) for part in RUNS_WHEN_IMPORTED)]
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH],
        cwd=ROOT,
        input=json.dumps([package, [module_name(path) for path in files]]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert {} == json.loads(done.stdout or json.dumps(done.stderr))


def test_importing_the_agent_is_light() -> None:
    """`import relay_agent` needs the standard library only, loads few modules, and none for networks or threads."""
    command = (
        "import json, sys; before = set(sys.modules); import relay_agent; print(json.dumps([*{*sys.modules} - before]))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert set() == HEAVY & loaded
    assert len(loaded) <= MAX_MODULES, sorted(loaded)


@pytest.mark.parametrize("commands", ["relay_agent.cli", "relay_client.cli"])
def test_command_lines_are_read_without_network_modules(commands: str) -> None:
    """A command's modules are imported when it runs: `relay-agent run` and `--help` wait for no event loop or TLS."""
    command = f"import sys, {commands}; print(*({HEAVY - {'threading'}} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-S", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    assert [] == done.stdout.split()


def test_asking_a_running_client_needs_no_websocket() -> None:
    """A command that queries a running client loads neither the WebSocket library nor the HTTP library."""
    command = "import sys, relay_client.control.client; print(*({'aiohttp', 'websockets'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    assert [] == done.stdout.split()


def test_exported_names_exist() -> None:
    """`__all__` names nothing that its module does not have."""
    wrong = {}
    for path in source_files(*PACKAGES):
        tree = ast.parse(path.read_text())
        if missing := _exported(tree) - set(_top_level_names(tree)):
            wrong[module_name(path)] = sorted(missing)
    assert {} == wrong


def test_only_public_names_are_imported() -> None:
    """What one of our modules imports from another is a module, in its `__all__`, or a public name that it defines."""
    trees = {module_name(path): ast.parse(path.read_text()) for path in source_files(*PACKAGES)}
    public = {name: _exported(tree) or {*_top_level_names(tree, imports=False)} for name, tree in trees.items()}
    wrong = {
        (importer, f"{node.module}.{alias.name}")
        for importer, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in trees
        for alias in node.names
        if alias.name.startswith("_") or alias.name not in public[node.module]
        if f"{node.module}.{alias.name}" not in trees
    }
    assert set() == wrong


def test_imported_packages_are_dependencies() -> None:
    """What the product imports is in pyproject.toml, apart from what comes with a dependency or with the job."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = (each for extra in EXTRAS for each in project["optional-dependencies"][extra])
    wanted = {_normal(re.split(r"[^\w-]", text)[0]) for text in (*project["dependencies"], *extras)}
    imported = {
        name.partition(".")[0]
        for path in source_files(*PACKAGES)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    }
    others = imported - sys.stdlib_module_names - {*PACKAGES, *OTHER_IMPORTS}
    distributions = packages_distributions()
    assert [] == [name for name in sorted(others) if wanted.isdisjoint(map(_normal, distributions.get(name, [name])))]


def _normal(distribution: str) -> str:
    return distribution.replace("_", "-").lower()


def _exported(tree: ast.Module) -> set[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == "__all__" for to in node.targets):
            return set(ast.literal_eval(node.value))
    return set()


def _top_level_names(tree: ast.Module, *, imports: bool = True) -> Iterator[str]:
    """Yield what a module binds at its top level, in branches of `if` and `try` too, with what it imports if wanted."""
    pending = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If | ast.Try):
            pending += [
                *node.body,
                *node.orelse,
                *(each for handler in getattr(node, "handlers", []) for each in handler.body),
            ]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names if imports)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def test_no_file_is_long() -> None:
    """A file of more than 600 lines has several subjects: most have 100 to 450."""
    long = {
        str(path.relative_to(ROOT)): lines
        for path in source_files(*PACKAGES, "tests", "samples")
        if "node_modules" not in path.parts and (lines := len(path.read_text().splitlines())) > MAX_LINES
    }
    assert {} == long


def test_tables_in_comments_are_not_filled() -> None:
    """No row of a table in a comment is wrapped to the start of the next line, as text of a paragraph is."""
    files = {path.relative_to(ROOT): path.read_text() for path in source_files(*PACKAGES, "samples", "tests")}
    assert [] == [f"{file}: {row.strip()}" for file, text in files.items() for row in _wrapped_rows(text)]


def test_wrapped_rows_are_found() -> None:
    """A row that continues under its first cell, or further to the left, is reported; under its last cell is right."""
    row = "#     " + "name".ljust(20) + "x" * (MAX_WIDTH - 26)
    assert [row, row] == list(_wrapped_rows(f"{row}\n#     wrapped\n#\n{row}\n# wrapped\n"))
    assert [] == list(_wrapped_rows(f"{row}\n#{' ' * 25}continued\n#     name    other\n{row}\n#\n# text\n"))


def _wrapped_rows(source: str) -> Iterator[str]:
    lines = [line.strip() for line in source.splitlines()]
    for row, wrapped in pairwise(lines):
        indent, text = ROW.match(row), wrapped.lstrip("# ")
        is_picture = "--" in text or PICTURE & set(text)
        if indent and wrapped.startswith("#") and text and not is_picture and not GAP.search(text):
            is_full = len(row) + 1 + len(text.split()[0]) > MAX_WIDTH
            if len(wrapped) - len(text) < len(indent[0]) or (is_full and len(wrapped) - len(text) == len(indent[0])):
                yield row


def test_tables_have_columns() -> None:
    """No cell of a table in a docstring begins at a column of its own, as it does when rows were joined by mistake."""
    files = {path.relative_to(ROOT): path.read_text() for path in source_files(*PACKAGES, "samples", "tests")}
    assert [] == [f"{file}: {row.strip()}" for file, text in files.items() for row in _odd_rows(text)]


def test_joined_rows_are_found() -> None:
    """A table whose rows were filled like a paragraph is reported."""
    table = ["one      the first of them", "two      the second", "three    the third", "four     the fourth one"]
    assert [] == list(_odd_rows('"""A table:\n\n' + "\n".join(table) + '\n"""'))
    joined = [table[0], " ".join(table[1:3]), table[3]]
    assert [joined[1]] == list(_odd_rows('"""A table:\n\n' + "\n".join(joined) + '\n"""'))


def _odd_rows(source: str) -> Iterator[str]:
    """Yield the rows of tables in docstrings that have a cell where no other row has one; pictures are not tables."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                for paragraph in text.split("\n\n"):
                    rows = {row: {gap.end() for gap in GAP.finditer(row)} for row in paragraph.splitlines()}
                    if sum(map(bool, rows.values())) > 2:
                        yield from (row for row in [*rows][1:] if not PICTURE & set(row) and _is_odd(row, rows))


def _is_odd(row: str, rows: dict[str, set[int]]) -> bool:
    others = (cells | {len(other) - len(other.lstrip())} for other, cells in rows.items() if other != row)
    return bool(rows[row].difference(*others))
