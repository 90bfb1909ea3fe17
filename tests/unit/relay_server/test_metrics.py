"""Facts about the metrics of hybrid connections."""

from relay_server.metrics import OTHER_ENTITIES, EntityCounters


def test_number_of_labels_is_limited():
    """Hybrid connections above the limit share a label; those before it keep theirs."""
    counters = EntityCounters(limit=2)
    for path in ("a", "b", "c", "d", "a", None):
        counters.of(path).listener_connections += 1
    found = counters.snapshot([])
    expected = {OTHER_ENTITIES: 3, "a": 2, "b": 1}
    assert expected == {label: metrics.listener_connections for label, metrics in found.items()}


def test_bytes_of_open_and_ended_pairs():
    """The bytes of open pairs are added to those of pairs that have ended, for each hybrid connection."""
    counters = EntityCounters()
    one, other = counters.of("a"), counters.of("b")
    one.bytes_to_listeners = 100
    found = counters.snapshot([(one, 1, 2), (one, 10, 20), (other, 5, 6)])
    expected = {OTHER_ENTITIES: (0, 0), "a": (111, 22), "b": (5, 6)}
    assert expected == {label: (each.bytes_to_listeners, each.bytes_to_senders) for label, each in found.items()}
