"""Facts about edits of thousands of generated files, read by the parser of VS Code where it is installed."""

import copy
import functools
import json
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relay_client.editor_setup.jsonc import Document, parse
from relay_core.errors import ConfigurationError
from tests.support.data.jsonc_files import JsoncFile, anything, damaged

pytestmark = pytest.mark.xdist_group("edited_files")  # one worker makes them
EDITORS = Path(__file__).parents[4] / "editors"
NODE = shutil.which("node")
COUNT = 3000
KEPT = ("justMyCode",)


def with_oracle(test: Callable[[], None]) -> Callable[[], None]:
    """Mark a test that needs VS Code's parser."""
    missing = "Node is not installed" if NODE is None else "jsonc-parser is not installed: run make extras"
    is_there = NODE is not None and (EDITORS / "node_modules/jsonc-parser").is_dir()
    return pytest.mark.editors(pytest.mark.skipif(not is_there, reason=missing)(test))


def wanted_entries(rng: random.Random) -> list[dict[str, Any]]:
    """Return entries for `configurations`, some of which a generated file may have already."""
    common = {"type": "debugpy", "connect": {"host": "127.0.0.1", "port": rng.choice((5678, 1))}, "justMyCode": False}
    names = rng.sample(["new", "Relay: rank 0", "ä ö", "Relay: rank 1"], k=rng.randrange(1, 4))
    return [{"name": name, **common, "pathMappings": [{"localRoot": "x", "remoteRoot": "."}]} for name in names]


def edited(text: str, entries: list[dict[str, Any]]) -> str:
    """Return a text with all edits that `relay-client init` can do."""
    document = Document(text, "launch.json")
    document.set_default("version", "0.2.0")
    for entry in entries:
        document.upsert("configurations", "name", entry, keep=KEPT)
    document.upsert("compounds", "name", {"name": "all", "configurations": [e["name"] for e in entries]})
    return document.text()


def expected(value: dict[str, Any], entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the edits make of a value."""
    result = copy.deepcopy(value)
    result.setdefault("version", "0.2.0")
    for entry in entries:
        put(result.setdefault("configurations", []), entry)
    put(result.setdefault("compounds", []), {"name": "all", "configurations": [e["name"] for e in entries]})
    return result


def put(elements: list[Any], entry: dict[str, Any]) -> None:
    found = next((each for each in elements if isinstance(each, dict) and each.get("name") == entry["name"]), None)
    if found is None:
        elements.append(entry)
        return
    for key, value in entry.items():
        if key not in KEPT or key not in found:
            found[key] = {**(found.get(key) or {}), **value} if isinstance(value, dict) else value


def as_numbers(value: Any) -> Any:
    """Return a value with the numbers of JavaScript."""
    return json.loads(json.dumps(value), parse_int=float)


@functools.cache
def files() -> list[tuple[JsoncFile, list[dict[str, Any]], str]]:
    """Return files, the entries for them, and what the editor has made of both."""
    found = []
    for seed in range(COUNT):
        rng = random.Random(seed)
        file, entries = JsoncFile(rng), wanted_entries(rng)
        found.append((file, entries, edited(file.text, entries)))
    return found


def is_subsequence(part: str, whole: str) -> bool:
    rest = iter(whole)
    return all(char in rest for char in part)


def oracle(texts: list[str]) -> list[dict[str, Any]]:
    """Return what VS Code's parser reads in each text."""
    done = subprocess.run(
        [NODE, str(EDITORS / "jsonc_oracle.js")], input=json.dumps(texts).encode(), capture_output=True, check=True
    )
    return json.loads(done.stdout)


def accepts(text: str) -> bool:
    try:
        parse(text, "x")
    except ConfigurationError:
        return False
    return True


def test_values_and_comments_stay() -> None:
    """An edited file has what it had and what was asked for, and every comment in the same order."""
    for file, entries, after in files():
        root = parse(after, "x")
        assert expected(file.value, entries) == root.data, file.text
        position = 0
        for comment in file.comments:
            assert (position := after.find(comment, position)) >= 0, file.text


def test_the_second_run_changes_nothing() -> None:
    """The same edits of an edited file leave every byte as it is."""
    for _, entries, after in files():
        assert after == edited(after, entries)


def test_additions_leave_every_byte() -> None:
    """A file in which nothing has to be replaced keeps all its characters in the same order."""
    for seed in range(COUNT):
        file = JsoncFile(random.Random(seed))
        document = Document(file.text, "x")
        document.upsert("tasks", "label", {"label": "relay-client", "type": "shell"})
        document.upsert("configurations", "name", {"name": "Not there yet", "port": 5678})
        assert is_subsequence(file.text, document.text()), file.text


@with_oracle
def test_vs_code_reads_the_same() -> None:
    """VS Code's own parser finds the expected value in an edited file, no error, and every comment in its order."""
    cases = files()
    before, after = oracle([file.text for file, _, _ in cases]), oracle([text for _, _, text in cases])
    for (file, entries, _), old, new in zip(cases, before, after, strict=True):
        assert 0 == old["errors"] == new["errors"], file.text
        assert as_numbers(expected(file.value, entries)) == as_numbers(new["value"]), file.text
        assert file.comments == old["comments"] == new["comments"], file.text


@with_oracle
def test_broken_files_are_those_that_are_broken_for_vs_code() -> None:
    """Damaged files are refused exactly where VS Code's parser reports an error."""
    texts = []
    for seed in range(COUNT):
        rng = random.Random(seed)
        texts.append(damaged(rng, JsoncFile(rng, {"a": anything(rng, 3)}).text))
    read = oracle(texts)
    assert {True, False} == {not each["errors"] for each in read}
    for text, each in zip(texts, read, strict=True):
        assert accepts(text) == (not each["errors"]), text
