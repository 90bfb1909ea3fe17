import pytest

from relay_server.protocol.requests import error_phrase, guid_of, new_guid, tracking_id

GUID = "7b17ae72-fddb-4c9b-a8f9-94c2654aa0fe"


@pytest.mark.parametrize(("text", "guid"), [(GUID, GUID), (f"{GUID}_G13_G4", GUID), (GUID.upper(), GUID.upper())])
def test_the_guid_part_of_an_id_is_found(text, guid):
    """Gateways append their mark, and the GUID keeps its case."""
    assert guid == guid_of(text)


@pytest.mark.parametrize("text", [None, "", "123456", f"{GUID}_", f"{GUID}x", f"{{{GUID}}}", GUID[:-1]])
def test_anything_else_has_no_guid(text):
    """An id that is not a GUID counts as none."""
    assert guid_of(text) is None


def test_a_tracking_id_is_the_clients_with_this_gateway_appended():
    """A client finds its own id again; without a usable one it gets a new GUID."""
    assert f"{GUID}_G0" == tracking_id(GUID)
    assert f"{GUID}_G13_G0" == tracking_id(f"{GUID}_G13")
    assert guid_of(tracking_id("123456")) is not None
    assert new_guid() != new_guid()


def test_an_error_phrase_looks_like_azures():
    """Message, TrackingId, SystemTracker and Timestamp stand in this order."""
    expected = "No. TrackingId:T_G0, SystemTracker:sb://ns/hc, Timestamp:2025-04-24T11:08:15"
    assert expected == error_phrase("No", tracking="T_G0", system="sb://ns/hc", now=1745492895.9)
