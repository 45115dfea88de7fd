"""The table of metrics: bounded labels, one exposition, one page."""

import pytest
from prometheus_client import Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from hapax.telemetry.metrics import Metrics, Row, rows


@pytest.fixture
def metrics():
    return Metrics()


def families(metrics: Metrics) -> dict[str, str]:
    text = generate_latest(metrics.registry).decode()
    return {family.name: family.type for family in text_string_to_metric_families(text)}


def test_no_label_is_unbounded():
    labels = [label for row in rows() for label in row.labels]
    assert labels
    assert all(bool(label.values) != (label.limit > 0) for label in labels)
    assert {"id", "offset", "key"}.isdisjoint(label.name for label in labels)


def test_every_row_is_exposed_and_parses_and_no_series_tells_when_it_was_created(metrics):
    kinds: dict[object, str] = {Counter: "counter", Gauge: "gauge", Histogram: "histogram"}
    expected = {row.name.removesuffix("_total"): kinds[row.kind] for row in rows()}
    assert families(metrics).items() >= expected.items()
    assert not [name for name in families(metrics) if name.endswith("_created")]


def test_two_metrics_do_not_share_a_registry_and_a_child_is_bound_once(metrics):
    metrics.in_doubt_fences.of().inc()
    assert Metrics().registry.get_sample_value("hapax_in_doubt_fences_total") == 0
    assert metrics.records_consumed.of("a") is metrics.records_consumed.of("a")
    assert metrics.records_consumed.of("a") is not metrics.records_consumed.of("b")


def test_a_label_past_its_limit_or_that_a_closed_one_does_not_list_counts_as_other(metrics):
    value = metrics.registry.get_sample_value
    assert value("hapax_transactions_total", {"outcome": "fenced"}) == 0  # before anything happened
    assert value("hapax_dedup_store_up") == 1
    for number in range(60):
        metrics.records_dead_lettered.of(f"Error{number}").inc()
    metrics.transactions.of("surprising").inc()
    assert value("hapax_records_dead_lettered_total", {"reason": "Error49"}) == 1
    assert value("hapax_records_dead_lettered_total", {"reason": "Error50"}) is None
    assert value("hapax_records_dead_lettered_total", {"reason": "other"}) == 10
    assert value("hapax_transactions_total", {"outcome": "other"}) == 1


def test_a_removed_child_leaves_the_exposition_and_may_come_back(metrics):
    lag = {"group": "g", "topic": "a", "partition": "0"}
    metrics.consumer_lag.of("g", "a", "0").set(5)
    metrics.consumer_lag.remove("g", "a", "0")
    metrics.consumer_lag.remove("g", "never", "0")
    assert metrics.registry.get_sample_value("hapax_consumer_lag", lag) is None
    metrics.consumer_lag.of("g", "a", "0").set(6)
    assert metrics.registry.get_sample_value("hapax_consumer_lag", lag) == 6


def test_buckets_of_durations_start_below_a_millisecond():
    for row in rows():
        if row.kind is Histogram and row.name.endswith("_seconds"):
            assert row.buckets[0] < 0.001
            assert list(row.buckets) == sorted(set(row.buckets))


def test_the_table_itself_holds_rows_and_not_families():
    assert isinstance(vars(Metrics)["records_consumed"], Row)
    with pytest.raises(AttributeError, match="records_consumed is a row"):
        _ = Metrics.records_consumed
