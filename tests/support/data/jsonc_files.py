"""Generated JSONC files, as people write them and worse, with the values and comments that are in them."""

import json
import random
import string
from collections.abc import Callable
from typing import Any

LINE_ENDS = ("\n", "\r\n", "\r")
NAMES = ("new", "Relay: rank 0", "", "ä ö", "a\\b", 'quo"te', "{", "// no comment", "/* nor this */", "\u2028", "🙂")


class JsoncFile:
    """One file: its text, what is in it, and its comments in order.

    Args:
        rng: Decides about everything.
        value: What to write; by default something that resembles a launch.json.
    """

    def __init__(self, rng: random.Random, value: dict[str, Any] | None = None) -> None:
        self._rng = rng
        self._line_end = rng.choice(LINE_ENDS)
        self._unit = rng.choice(("", " ", "  ", "    ", "\t"))
        self._spaced = rng.random() < 0.8
        self._commented = rng.choice((0.0, 0.1, 0.5))
        self.comments: list[str] = []
        self.value = launch_like(rng) if value is None else value
        bom = "\ufeff" if rng.random() < 0.1 else ""
        self.text = bom + self._gap(0) + self._written(self.value, 0) + self._gap(0)

    def _written(self, value: Any, level: int) -> str:
        if isinstance(value, dict):
            return self._container("{}", [(key, each) for key, each in value.items()], level, self._member)
        if isinstance(value, list):
            return self._container("[]", value, level, self._written)
        return escaped(self._rng, value) if isinstance(value, str) else json.dumps(value)

    def _member(self, item: tuple[str, Any], level: int) -> str:
        key, value = item
        return escaped(self._rng, key) + self._gap(level) + ":" + self._gap(level) + self._written(value, level)

    def _container(self, marks: str, items: list[Any], level: int, write: Callable[[Any, int], str]) -> str:
        pieces = [marks[0], self._gap(level + 1)]
        for position, item in enumerate(items):
            pieces += [write(item, level + 1), self._gap(level + 1)]
            if position < len(items) - 1 or self._rng.random() < 0.2:
                pieces += [",", self._gap(level + 1)]
        return "".join([*pieces, marks[1]])

    def _gap(self, level: int) -> str:
        """Return space, line ends and comments, which may be anywhere between two tokens."""
        pieces = []
        while self._rng.random() < self._commented:
            pieces.append(self._space(level))
            body = f"c{len(self.comments)}{self._rng.choice(('', ' ', ' [1, ', ' }', ' /* ', chr(9)))}"
            comment = self._rng.choice((f"// {body}", f"/* {body}*/", f"/*{body}{self._line_end}*/"))
            self.comments.append(comment)
            pieces.append(comment + (self._line_end if comment.startswith("//") else ""))
        return "".join([*pieces, self._space(level)])

    def _space(self, level: int) -> str:
        if not self._spaced:
            return ""
        return self._rng.choice(("", " ", "\t", self._line_end, self._line_end + self._unit * level))


def launch_like(rng: random.Random) -> dict[str, Any]:
    """Return something with `configurations` most of the time, which mostly is a list of named objects."""
    found = {rng.choice(NAMES): anything(rng, 2) for _ in range(rng.randrange(3))}
    if rng.random() < 0.8:
        found["configurations"] = [
            {"name": rng.choice(NAMES), **some_members(rng)} if rng.random() < 0.8 else anything(rng, 2)
            for _ in range(rng.randrange(5))
        ]
    if rng.random() < 0.3:
        found["compounds"] = [{"name": "all", "configurations": [rng.choice(NAMES) for _ in range(rng.randrange(4))]}]
    return found


def anything(rng: random.Random, depth: int) -> Any:
    """Return any value of JSON."""
    kinds: list[Callable[[], Any]] = [
        lambda: rng.choice(NAMES),
        lambda: rng.choice((True, False, None)),
        lambda: rng.choice((0, -1, 5678, 1.5, -2e-3, 1e20)),
    ]
    if depth:
        kinds.append(lambda: [anything(rng, depth - 1) for _ in range(rng.randrange(4))])
        kinds.append(lambda: {rng.choice(NAMES): anything(rng, depth - 1) for _ in range(rng.randrange(4))})
    return rng.choice(kinds)()


def some_members(rng: random.Random) -> dict[str, Any]:
    """Return members that an edit may find in a configuration: other values of the same kind, and others."""
    found = {
        "type": rng.choice(("python", "debugpy", None)),
        "connect": rng.choice(({}, {"port": 5678}, {"port": "5678", "timeout": 1}, None)),
        "justMyCode": rng.choice((True, None)),
        "cwd": anything(rng, 2),
    }
    return {key: value for key, value in found.items() if rng.random() < 0.3}


def escaped(rng: random.Random, text: str) -> str:
    """Return a string of JSON, some of its characters escaped."""
    short = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\n": "\\n"}

    def written(char: str) -> str:
        if char in '"\\' or ord(char) < 0x20:
            return short.get(char, f"\\u{ord(char):04x}")
        if rng.random() < 0.1 and ord(char) < 0x10000:
            return rng.choice((short.get(char, char), f"\\u{ord(char):04X}"))
        return char

    return f'"{"".join(map(written, text))}"'


def damaged(rng: random.Random, text: str) -> str:
    """Return a text with one character added, removed or replaced."""
    position = rng.randrange(len(text) + 1)
    char = rng.choice([*'{}[]:,"/*\\', *"0-.eE+tfn'", " ", "\x01", "\x0b", "\xa0", *string.ascii_lowercase[:3]])
    return text[:position] + rng.choice((char, "")) + text[position + rng.randrange(2) :]
