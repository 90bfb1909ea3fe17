"""Facts about where a line of a file is in this process."""

import dis
from pathlib import Path

import pytest

from relay_agent.trigger.places import find_codes, find_places
from relay_core.errors import ConfigurationError
from tests.support.jobs.loaded_module import Loaded

SOURCE = """\
def step(model, batch):
    loss = max(
        model,
        batch,
    )

    while loss > 0:
        loss -= 1
    for item in batch:
        loss = lambda: (
            item)
    try:
        total = sum(x for x in batch)
    finally:
        print(total)
"""


def places(line: int) -> list[tuple[str, int, set[str]]]:
    """Return the function of each place, its line, and the names of the instructions at which the line begins."""
    found = find_places([compile(SOURCE, "train.py", "exec")], line)
    return [
        (
            place.code.co_name,
            place.line,
            {each.opname for each in dis.get_instructions(place.code) if each.offset in place.starts},
        )
        for place in found
    ]


def test_statement_of_several_lines_begins_once() -> None:
    """A call that ends on other lines does not make its first line begin again."""
    [(name, line, starts)] = places(2)
    assert ("step", 2, 1) == (name, line, len(starts))
    assert not any("CALL" in each for each in starts)


def test_line_without_code() -> None:
    """The next line that has code is taken; after the last one, there is none."""
    assert ["step", 7] == [*places(6)[0][:2]]
    assert [] == places(99)


def test_line_behind_a_function() -> None:
    """Behind a function, its last line is taken; otherwise, the next line at the same level."""
    source = """\
import sys

class Model:
    def forward(
        self,
    ):
        # comment
        return 1

    def backward(self):
        return 2

for item in [1]:
    value = sum(x for x in [item])

    print(value)
"""
    code = compile(source, "train.py", "exec")
    found = {line: find_places([code], line)[0] for line in (2, 5, 7, 9, 12, 15)}
    expected = {2: 3, 5: 8, 7: 8, 9: 8, 12: 11, 15: 16}
    assert expected == {line: place.line for line, place in found.items()}


def test_copies_of_a_line() -> None:
    """The compiler copies the test of a loop and the code of `finally`; the line begins at each copy."""
    code = compile(SOURCE, "train.py", "exec")
    assert [2, 2] == [len(find_places([code], line)[0].starts) for line in (7, 15)]


def test_generator_expression_belongs_to_its_line() -> None:
    """The code of a generator expression or lambda is not a place of its own, unless it has a line of its own."""
    assert ["step"] == [name for name, _, _ in places(13)]
    assert ["<lambda>"] == [name for name, _, _ in places(11)]


def test_loop() -> None:
    """The line of a loop begins when an item is fetched: for each item, and once more at the end."""
    assert {"FOR_ITER"} == places(9)[0][2]


def test_beginning_of_a_function() -> None:
    """The line of `def` belongs to the code that defines the function, and not to the function."""
    assert ["<module>"] == [name for name, _, _ in places(1)]


def test_file_by_the_last_parts_of_its_path(tmp_path: Path) -> None:
    """A file is found by its last parts, and by a link to it; a part of a name is not enough."""
    (tmp_path / "models").mkdir()
    net = Loaded(tmp_path / "models" / "net.py")
    net.execute("def forward():\n    return 1\n")
    (tmp_path / "link").symlink_to(tmp_path / "models")
    for file in ("models/net.py", str(net.path), str(tmp_path / "link" / "net.py")):
        assert [net.forward.__code__] == find_codes(file)
    for file in ("et.py", "other/net.py", "/net.py"):
        assert [] == find_codes(file)


def test_several_files(tmp_path: Path) -> None:
    """If several files end in the path, none of them is chosen."""
    modules = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        modules.append(Loaded(tmp_path / name / "twice.py"))
        modules[-1].execute("def forward():\n    return 1\n")
    with pytest.raises(
        ConfigurationError, match=r"several loaded files end in twice\.py: \S+a/twice\.py, \S+b/twice\.py"
    ):
        find_codes("twice.py")
    assert [modules[1].forward.__code__] == find_codes("b/twice.py")


def test_installed_code(tmp_path: Path) -> None:
    """Installed code is found only by more than its name, and relay-debug's own code never."""
    directory = tmp_path / "site-packages" / "optim"
    directory.mkdir(parents=True)
    net = Loaded(directory / "places_of_net.py")
    net.execute("def forward():\n    return 1\n")
    assert [] == find_codes("places_of_net.py")
    for file in ("optim/places_of_net.py", str(net.path)):
        assert [net.forward.__code__] == find_codes(file)
    for file in ("places.py", "trigger/places.py", find_codes.__code__.co_filename):
        assert [] == find_codes(file)
