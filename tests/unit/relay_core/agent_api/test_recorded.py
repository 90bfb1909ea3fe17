"""Facts about the wire format: each record is sent as it was recorded, so that other versions can read it."""

import json
from pathlib import Path

import pytest

from relay_core.agent_api.announcement import AgentInfo
from relay_core.agent_api.evaluation import Evaluate
from relay_core.agent_api.push import Push
from relay_core.records import encode, parse
from tests.support.data.wire_samples import SAMPLES

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())
"""What version 1 of the contract sends for each sample. A change to a recorded field needs a higher version."""
COMPRESSED = {
    "id": "1a2b",
    "compressed": (
        "eJxdkk1vm0AQhv9KNZdctpjlG069VKrUey9WhNYwxqSwi2aXuK7l/94Z0shOOO18P+8MVxh7aECb5AAKTs4Htqzr8atmuztLcPfi"
        "JCjeloz9DY1WQKvl0IHMK7Z+tW0Jm69daWL/KYTFN7vdPEXm70oYdW7ecdjvPlYEQwMGD83+CosjHp4XVcydtjGJgrOjiRkyBYuA"
        "ZvzwHY2LYAYyo42Wy2dQH0xANjsy/oQ9e3oMZhSuX2Za8TuRo+aLdZI72o5z6ziOeOxqg6Ql5ZtpQjDdaUbL066weiSR7A7fJrME"
        "t9zLdcwFuYLRt54DCw9tAq0oLJvZmkfgJtNwD9176Ci+sdCVqXkl6U09LEXfnhUcHZ0N9bKvIo4LVfHH7tWbAQUxjPMDTbes3CXS"
        "ibwdSc9KwYyzows/86qu0yyvecvBBcO6i6rUdVYWZVooGJiD5+zhB/cDFUccVA9FD8nPzLCQ69B73Gq2I+ooSTOVJXVWF2VSF2rP"
        "wKpUidJcIDlaCaeOsyovuQlrR9uPdvj0PyTvx8/fbitc/AeinJG3+hMv/y/69OcJPiwtlQsNVrTV23WO42YczeRRFjqgRTJhdPwz"
        "pyICexQZjoQB6mOFsInDI4bu9H7VVyS/1ejbP9xD/BI="
    ),
}


def read(kind: type, value: object) -> object:
    if issubclass(kind, AgentInfo):
        return kind.parse(value)
    return kind.parse_body(value) if issubclass(kind, (Evaluate, Push)) else parse(kind, value)


def written(sample: object) -> object:
    return json.loads(json.dumps(encode(sample)))


def test_every_sample_was_recorded() -> None:
    """Neither list has an entry that the other one lacks."""
    assert SAMPLES.keys() == RECORDED.keys()


@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_sent(name: str) -> None:
    """It is what was recorded, and is read as the same value."""
    assert RECORDED[name] == written(SAMPLES[name])
    assert SAMPLES[name] == read(type(SAMPLES[name]), RECORDED[name])


@pytest.mark.parametrize("name", SAMPLES)
def test_what_a_later_version_adds(name: str) -> None:
    """An unknown field is ignored."""
    assert SAMPLES[name] == read(type(SAMPLES[name]), {**RECORDED[name], "added_later": {"by": [1]}})


def test_a_compressed_announcement() -> None:
    """It is read as the fields that were compressed."""
    assert SAMPLES["announcement"] == AgentInfo.parse(COMPRESSED)
