"""Facts about the requests for event files; the other side may send anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.agent_api.event_files import (
    EventData,
    EventDataRequest,
    EventFile,
    EventFiles,
    EventFilesRequest,
    is_event_file,
)
from relay_core.agent_api.requests import parse_request, stream_name
from relay_core.records import encode, parse

NAME = "events.out.tfevents.1700000000.node-0.17.0"


@pytest.mark.parametrize("request_", [EventFilesRequest(), EventDataRequest(f"0/a b/{NAME}", 12)])
def test_requests(request_: EventFilesRequest | EventDataRequest) -> None:
    """The name of the stream has everything."""
    assert request_ == parse_request(stream_name(request_))


@pytest.mark.parametrize(
    "name", ["event_data", "event_data/", "event_data/1", "event_data/-1/a", "event_data/x/a", "event_data/²/a"]
)
def test_malformed_requests(name: str) -> None:
    """A request without an offset or a path is unknown."""
    assert parse_request(name) is None


def test_responses() -> None:
    """Files and data survive the wire format."""
    files = EventFiles((EventFile(f"0/train/{NAME}", 5),))
    assert files == parse(EventFiles, encode(files))
    assert EventData(b"\x00\xff") == parse(EventData, encode(EventData(b"\x00\xff")))
    assert EventData(b"") == parse(EventData, {"data": "%%"})


@pytest.mark.parametrize(
    "path",
    [
        *(
            "",
            "/etc/" + NAME,
            f"0/../{NAME}",
            f"0/./{NAME}",
            f"0//{NAME}",
            f"C:/{NAME}",
            f"0/a\\b/{NAME}",
            f"0/a\n/{NAME}",
        ),
        *("0/train.py", "0/events.out.tfevents.1/x", f"0/{'a' * 600}/{NAME}", f"0/ /{NAME}", f"0/a./../{NAME}"),
    ],
)
def test_paths_that_lead_elsewhere(path: str) -> None:
    """A client never writes to a path that leaves its directory, or to a file that is not an event file."""
    assert EventFiles() == parse(EventFiles, {"files": [{"path": path, "size": 1}]})


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_any_json(value: object) -> None:
    """Any response reads as files with safe names."""
    assert all(is_event_file(file.path.rpartition("/")[2]) for file in parse(EventFiles, {"files": value}).files)
    assert b"" == parse(EventData, value).data or isinstance(value, dict)
