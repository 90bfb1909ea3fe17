"""Facts about the metrics of hybrid connections."""

from relay_server.metrics import OTHER_ENTITIES, EntityCounters


def test_number_of_labels_is_limited():
    """Hybrid connections above the limit share a label; those before it keep theirs."""
    counters = EntityCounters(limit=2)
    for path in ("a", "b", "c", "d", "a", None):
        counters.of(path).listener_connections += 1
    found = counters.snapshot()
    expected = {OTHER_ENTITIES: 3, "a": 2, "b": 1}
    assert expected == {label: metrics.listener_connections for label, metrics in found.items()}


def test_snapshot_does_not_change():
    """What is counted later is not in it."""
    counters = EntityCounters()
    counters.of("a").rejected = 1
    found = counters.snapshot()
    counters.of("a").rejected = 2
    assert 1 == found["a"].rejected
