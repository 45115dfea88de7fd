"""The canonical line of a transaction, and the metrics that come from the same facts."""

import msgspec
import pytest

from hapax.core.records import Coordinates
from hapax.processing.batch_result import BatchResult
from tests.unit.test_telemetry_events import Told

KEYS = {
    "timestamp", "level", "event", "message", "app", "instance", "transactions", "outcome",
    "attempt", "records", "offsets", "outputs", "duplicates", "filtered", "looped", "retried",
    "moved", "dead_letters", "dead_letter_reasons", "without_id", "unchecked", "claims_new_or_own",
    "bytes_in", "latency_ms", "phases_ms", "duration_ms",
}  # fmt: skip

P0 = ("orders", 0)
SETTLED = BatchResult(
    offsets={("orders", 0): (100, 107), ("orders", 3): (9, 12)},
    records=9,
    outputs={"invoices": 5, "dead": 1},
    duplicates=2,
    filtered=1,
    retried=3,
    moved=4,
    dead_letters=1,
    dead_letter_reasons={"KeyError": 1},
    without_id=1,
    claims_new_or_own=6,
    bytes_in=900,
    phases_s={"identify": 0.001, "claim": 0.002, "commit": 0.004},
    oldest_timestamp_ms=1_699_999_990_000,
    newest_timestamp_ms=1_699_999_999_500,
)


@pytest.fixture
def told():
    return Told("info")


def test_the_line_has_the_agreed_keys_and_says_offsets_phases_and_latency(told):
    told.events.transaction_committed(SETTLED)
    (line,) = told.lines
    assert line.keys() == KEYS
    assert list(line)[:4] == ["timestamp", "level", "event", "message"]
    assert line["offsets"] == {"orders/0": [100, 107], "orders/3": [9, 12]}
    assert line["phases_ms"] == {"identify": 1.0, "claim": 2.0, "commit": 4.0}
    assert line["duration_ms"] == 7.0
    assert line["latency_ms"] == {"oldest": 10_000.0, "newest": 500.0}


def test_transactions_of_a_second_share_a_line_with_the_sums_of_all(told):
    for number in range(11):
        span = (100 + number, 101 + number)
        told.events.transaction_committed(msgspec.structs.replace(SETTLED, offsets={P0: span}))
        told.monotonic_s += 0.1
    assert [line["transactions"] for line in told.lines] == [1, 10]
    line = told.lines[1]
    assert line["offsets"] == {"orders/0": [101, 111]}
    assert (line["records"], line["duplicates"], line["outputs"]) == (
        90,
        20,
        {"invoices": 50, "dead": 10},
    )
    assert line["dead_letter_reasons"] == {"KeyError": 10}
    assert line["phases_ms"] == {"identify": 10.0, "claim": 20.0, "commit": 40.0}
    assert (line["duration_ms"], line["attempt"]) == (70.0, 1)
    assert line["latency_ms"] == {"oldest": 10_000.0, "newest": 500.0}
    assert told.value("transactions_total", outcome="committed") == 11


NEXT: dict[str, tuple[object, ...]] = {
    "partitions_revoked": ([P0],),
    "loop_moved": (),  # a second later
    "service_draining": ("SIGTERM",),
    "service_stopped": (6, "position lost"),
    "service_crashed": (ValueError(),),
    "watchdog_fired": ("commit_transaction", 30.0),
    "call_hung": (Coordinates("orders", 0, 7), 30.0),
}


@pytest.mark.parametrize("event", NEXT)
def test_what_was_not_told_yet_is_told_before_anything_else_happens(told, event):
    for _ in range(3):
        told.events.transaction_committed(SETTLED)
    told.monotonic_s += event == "loop_moved"
    getattr(told.events, event)(*NEXT[event])
    assert [
        line["transactions"] for line in told.lines if line["event"] == "transaction_committed"
    ] == [1, 2]
    assert told.lines[1]["event"] == "transaction_committed"


def test_at_debug_each_transaction_has_a_line_of_its_own_and_without_one_metrics_move():
    told = Told("debug")
    for _ in range(3):
        told.events.transaction_committed(SETTLED)
    told.events.service_draining("SIGTERM")
    levels = [line["level"] for line in told.lines if line["event"] == "transaction_committed"]
    assert levels == ["debug"] * 3
    told = Told("error")
    told.events.transaction_committed(SETTLED)
    assert told.lines == []
    assert told.value("transactions_total", outcome="committed") == 1


def test_the_spans_of_a_trace_are_those_of_the_last_transaction(told):
    for span in ("a", "b", "c"):
        told.events.transaction_committed(msgspec.structs.replace(SETTLED, trace=("t", span)))
    told.events.service_draining("SIGTERM")
    assert [line["span_id"] for line in told.lines[:2]] == ["a", "c"]


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("records_consumed_total", {"topic": "orders"}, 9),
        ("records_produced_total", {"topic": "invoices"}, 5),
        ("records_produced_total", {"topic": "dead"}, 1),
        ("records_skipped_total", {"reason": "duplicate"}, 2),
        ("records_skipped_total", {"reason": "filtered"}, 1),
        ("records_retried_total", {"why": "asked"}, 3),
        ("records_retried_total", {"why": "moved"}, 4),
        ("records_dead_lettered_total", {"reason": "KeyError"}, 1),
        ("records_without_id_total", {}, 1),
        ("bytes_consumed_total", {}, 900),
        ("transactions_total", {"outcome": "committed"}, 1),
        ("dedup_lookups_total", {"result": "miss_or_own"}, 6),
        ("dedup_lookups_total", {"result": "hit"}, 2),
        ("transaction_duration_seconds_sum", {"phase": "commit"}, 0.004),
        ("transaction_duration_seconds_sum", {"phase": "total"}, pytest.approx(0.007)),
        ("transaction_records_sum", {}, 9),
        ("dedup_latency_seconds_sum", {}, 0.002),
        ("record_latency_seconds_count", {}, 2),
        ("record_latency_seconds_sum", {}, pytest.approx(10.5)),
        ("last_commit_timestamp_seconds", {}, 1_700_000_000),
    ],
)
def test_the_metrics_say_the_same(name, labels, expected, told):
    told.events.transaction_committed(SETTLED)
    assert told.value(name, **labels) == expected


def test_records_of_several_topics_are_told_apart_when_the_core_says_how(told):
    offsets = {("a", 0): (0, 2), ("b", 0): (0, 5)}
    told.events.transaction_committed(
        BatchResult(offsets=offsets, records=7, inputs={"a": 2, "b": 5})
    )
    told.events.transaction_committed(BatchResult(offsets=offsets, records=7))
    assert told.value("records_consumed_total", topic="b") == 5
    assert told.value("records_consumed_total", topic="several") == 7


def test_one_record_is_one_latency_none_below_zero_and_those_without_time_are_none(told):
    bare = BatchResult(offsets={("a", 0): (0, 3)}, records=3, phases_s={"claim": 0.0001})
    told.events.transaction_committed(bare)
    assert told.value("record_latency_seconds_count") == 0
    assert told.value("dedup_latency_seconds_count") == 0
    assert told.lines[0]["latency_ms"] == {"oldest": None, "newest": None}
    ahead_ms = 1_700_000_009_000  # of a clock ahead of ours
    told.events.transaction_committed(
        BatchResult(
            offsets={("a", 0): (0, 1)},
            records=1,
            oldest_timestamp_ms=ahead_ms,
            newest_timestamp_ms=ahead_ms,
        )
    )
    assert told.value("record_latency_seconds_count") == 1
    assert told.value("record_latency_seconds_sum") == 0


def test_under_pass_the_batches_tell_that_the_claim_store_went_away_and_came_back(told):
    unchecked = BatchResult(offsets={("a", 0): (0, 3)}, records=3, unchecked=3)
    told.events.transaction_committed(unchecked)
    told.events.transaction_committed(unchecked)
    assert told.value("dedup_store_up") == 0
    assert told.value("records_unchecked_total") == 6
    told.monotonic_s += 2
    told.events.transaction_committed(SETTLED)
    told.events.transaction_committed(SETTLED)
    assert told.value("dedup_store_up") == 1
    claims = [line for line in told.lines if line["event"].startswith("claims_")]
    assert [line["event"] for line in claims] == ["claims_unavailable", "claims_recovered"]
    assert claims[1]["outage_s"] == 2


def test_a_batch_without_ids_says_nothing_about_the_claim_store(told):
    told.events.claims_unavailable("timeout", "pause")
    told.events.transaction_committed(
        BatchResult(offsets={("a", 0): (0, 3)}, records=3, without_id=3)
    )
    assert told.value("dedup_store_up") == 0
    assert not told.health.claims_ok
