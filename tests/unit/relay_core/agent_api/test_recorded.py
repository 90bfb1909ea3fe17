"""Facts about the wire format: this version and earlier ones can read what the other one sends."""

import json
from pathlib import Path

import pytest

from relay_core.agent_api.announcement import AgentInfo
from relay_core.agent_api.evaluation import Evaluate, NodeValues
from relay_core.agent_api.push import Push
from relay_core.agent_api.requests import encode_response
from relay_core.records import parse
from tests.support.wire_samples import SAMPLES

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())
"""What version 1 of the protocol sent for each sample before records described their own format."""


def read(kind: type, value: object) -> object:
    if issubclass(kind, (AgentInfo, NodeValues)):
        return kind.parse(value)
    return kind.parse_body(value) if issubclass(kind, (Evaluate, Push)) else parse(kind, value)


def written(sample: object) -> object:
    found = sample.encode() if isinstance(sample, AgentInfo) else encode_response(sample)
    return json.loads(json.dumps(found))


def test_every_sample_was_recorded() -> None:
    """Neither list has an entry that the other one lacks."""
    assert SAMPLES.keys() == RECORDED.keys()


@pytest.mark.parametrize("name", SAMPLES)
def test_what_earlier_versions_sent(name: str) -> None:
    """It is read as the value that they had."""
    assert SAMPLES[name] == read(type(SAMPLES[name]), RECORDED[name])


@pytest.mark.parametrize("name", SAMPLES)
def test_what_this_version_sends(name: str) -> None:
    """It is the same, except for fields that earlier versions read in the same way if they are missing."""
    assert [] == list(differences(RECORDED[name], written(SAMPLES[name]), name))


def differences(old: object, new: object, path: str) -> list[str]:
    """Return the paths at which two JSON values differ, apart from empty fields that only the old one has."""
    if isinstance(old, dict) and isinstance(new, dict):
        missing = {key for key in old.keys() - new.keys() if not is_empty(old[key])}
        return [
            *(f"{path}.{key}" for key in sorted(missing | (new.keys() - old.keys()))),
            *(
                each
                for key in sorted(old.keys() & new.keys())
                for each in differences(old[key], new[key], f"{path}.{key}")
            ),
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [each for number, (one, other) in pairs for each in differences(one, other, f"{path}[{number}]")]
    return [] if old == new or (is_empty(old) and is_empty(new)) else [path]


def is_empty(value: object) -> bool:
    """Return whether a field with this value is read in the same way as a missing field."""
    if isinstance(value, dict):
        return all(map(is_empty, value.values()))
    return value in (None, "", 0, False, [], "none")
