"""Each event makes the line of its name and moves its metric."""

import inspect
import io
import json
from typing import Any, NamedTuple

import msgspec
import pytest

from hapax.core.batch_result import BatchResult
from hapax.core.lag import PartitionLag, ReaderLag
from hapax.core.micro_batches import Numbers
from hapax.core.partition_offsets import HeldBack, LogOffsets
from hapax.core.ports import Stuck
from hapax.core.records import Coordinates, Record
from hapax.telemetry.events import Events
from hapax.telemetry.health import Health
from hapax.telemetry.logs import Level, configure_logs
from hapax.telemetry.metrics import Metrics
from hapax.telemetry.spark_state import Executor

ORDERS = ("orders", 0)
WHERE = Coordinates("orders", 0, 41)


OUT_LAG = PartitionLag(
    topic="out",
    partition=0,
    is_input=False,
    log=LogOffsets(1, 5, 8),
    committed=None,
    position=None,
    at_s=1_700_000_000.0,
    lag_s=None,
    margin_s=None,
    open_s=12.5,
)
READER_LAG = ReaderLag("out", 0, LogOffsets(1, 90, 90), 80, records=7, uncounted=2)
IDLE = Executor(
    name="1",
    address="10.0.0.9:40001",
    cores=4,
    running=1,
    done=20,
    failed=2,
    memory_bytes=2**20,
    memory_max_bytes=2**30,
)


class Told:
    """Events with clocks that stand still, the lines they made, and their metrics."""

    def __init__(self, level: Level = "debug") -> None:
        self.monotonic_s = 1_000.0
        self.wall_s = 1_700_000_000.0
        self._bytes = io.BytesIO()
        self.stream = io.TextIOWrapper(self._bytes, write_through=True)
        self.metrics = Metrics()
        self.health = Health(30.0, lambda: self.monotonic_s)
        logger = configure_logs(level, "json", stream=self.stream, app="shop", instance="shop-0")
        self.events = Events(self.metrics, self.health, logger, lambda: self.wall_s)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._bytes.getvalue().splitlines()]

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"hapax_{name}", labels)


@pytest.fixture
def told():
    return Told()


class Case(NamedTuple):
    event: str
    facts: dict[str, Any]
    line: dict[str, Any]
    sample: tuple[str, dict[str, str], float] | None


CASES = [
    Case(
        "service_started",
        {
            "settings": {"HAPAX_APP": "shop"},
            "version": "1",
            "engine": "worker",
            "librdkafka": "2",
            "record_path": "native (librdkafka 2)",
        },
        {"settings": {"HAPAX_APP": "shop"}, "version": "1", "record_path": "native (librdkafka 2)"},
        None,
    ),
    Case("preflight_passed", {}, {"level": "info", "remarks": []}, None),
    Case("preflight_refused", {"problems": ["no topic"]}, {"problems": ["no topic"]}, None),
    Case("service_ready", {}, {"level": "info"}, None),
    Case(
        "query_started",
        {"query": "q", "run": "r", "checkpoint": "/c"},
        {"query": "q", "run": "r", "checkpoint": "/c"},
        None,
    ),
    Case(
        "micro_batch_completed",
        {
            "numbers": Numbers(
                number=3,
                inputs={"orders": 12},
                outputs={"totals": 2},
                attempts=2,
                phases_s={"work": 0.5, "total": 1.0},
                lags={ORDERS: 7},
                late=1,
                state_rows=40,
                state_bytes=4000,
            )
        },
        {"number": 3, "records": 12, "outputs": {"totals": 2}, "lag": {"orders/0": 7}, "late": 1},
        ("state_rows", {}, 40),
    ),
    Case(
        "records_without_timestamp",
        {"records": 10, "late": 9},
        {"records": 10, "late": 9, "level": "warning"},
        None,
    ),
    Case("marker_refreshed", {"number": 7}, {"next": 7, "level": "info"}, None),
    Case(
        "producer_init_retried",
        {"reason": "timed out"},
        {"reason": "timed out", "level": "error"},
        ("brokers_awaited_total", {}, 1),
    ),
    Case(
        "lane_open_retried",
        {"where": ORDERS, "reason": "timed out"},
        {"partition": "orders/0", "reason": "timed out", "level": "error"},
        ("brokers_awaited_total", {}, 1),
    ),
    Case(
        "outputs_cluster_met",
        {"servers": "there:9092", "cluster_id": "id-of-there"},
        {"servers": "there:9092", "cluster": "id-of-there", "level": "info"},
        None,
    ),
    Case("brokers_reached", {}, {"level": "info", "outage_s": 0.0}, None),
    Case(
        "brokers_unreachable",
        {"places": "kafka:9092: connection refused"},
        {
            "reason": "no broker has answered since 22:13:20 (kafka:9092: connection refused)",
            "level": "error",
        },
        ("brokers_awaited_total", {}, 1),
    ),
    Case(
        "lag_updated",
        {"partition_lags": [OUT_LAG], "at_s": 1_700_000_000.0, "complete": True},
        {"partition_lags": {"out/0": OUT_LAG.log_figures()}},
        ("last_stable_offset_lag", {"topic": "out", "partition": "0"}, 3),
    ),
    Case(
        "lag_monitor_limited", {"remark": "a right"}, {"remark": "a right", "level": "info"}, None
    ),
    Case(
        "lag_monitor_failed",
        {"reason": "timed out"},
        {"reason": "timed out", "level": "warning"},
        ("lag_monitor_errors_total", {}, 1),
    ),
    Case(
        "reader_lag_updated",
        {"group": "billing", "lags": [READER_LAG]},
        {"group": "billing", "records_max": {"out/0": 9}},
        ("reader_lag_records_max", {"group": "billing", "topic": "out", "partition": "0"}, 9),
    ),
    Case(
        "reader_lag_failed",
        {"group": "billing", "reason": "timed out"},
        {"group": "billing", "reason": "timed out", "level": "warning"},
        None,
    ),
    Case(
        "native_route_lost",
        {"partitions": [("in", 3)]},
        {"level": "warning", "partitions": ["in/3"]},
        ("native_routes_lost_total", {}, 1),
    ),
    Case(
        "native_path_left",
        {"reason": "other ids"},
        {"level": "error", "reason": "other ids"},
        ("native_path_left_total", {}, 1),
    ),
    Case("intake_paused", {}, {"level": "warning"}, ("paused", {}, 1)),
    Case("intake_resumed", {}, {"level": "info", "paused_s": 0.0}, ("paused", {}, 0)),
    Case(
        "client_files_changed",
        {"files": ["/run/ca.pem"], "restart": False},
        {"level": "info", "files": ["/run/ca.pem"], "restart_needed": False},
        None,
    ),
    Case(
        "client_files_changed",
        {"files": ["/run/ca.pem"], "restart": True},
        {"level": "warning", "files": ["/run/ca.pem"], "restart_needed": True},
        None,
    ),
    Case(
        "client_files_refused",
        {"files": ["/run/ca.pem"], "problem": "it is empty"},
        {"level": "error", "files": ["/run/ca.pem"], "problem": "it is empty"},
        None,
    ),
    Case("batch_abandoned", {"reason": "unresolved"}, {"reason": "unresolved"}, None),
    Case("service_draining", {"reason": "SIGTERM"}, {"reason": "SIGTERM"}, None),
    Case(
        "service_stopped",
        {"exit_code": 4, "reason": "twin"},
        {"level": "error", "exit_code": 4, "reason": "twin"},
        None,
    ),
    Case("service_crashed", {"error": ValueError("no")}, {"error": "ValueError"}, None),
    Case(
        "watchdog_fired",
        {"call": "commit", "seconds": 61.0},
        {"level": "critical", "call": "commit", "seconds": 61.0},
        ("watchdog_fired_total", {"call": "commit"}, 1),
    ),
    Case(
        "partitions_assigned",
        {"partitions": [("orders", 1), ORDERS]},
        {"partitions": ["orders/0", "orders/1"], "ours": 2},
        ("rebalances_total", {"kind": "assigned"}, 1),
    ),
    Case(
        "partitions_revoked",
        {"partitions": [ORDERS]},
        {"partitions": ["orders/0"], "ours": 0, "level": "info"},
        ("rebalances_total", {"kind": "revoked"}, 1),
    ),
    Case(
        "partitions_lost",
        {"partitions": [ORDERS]},
        {"partitions": ["orders/0"], "level": "warning"},
        ("rebalances_total", {"kind": "lost"}, 1),
    ),
    Case(
        "lag_observed",
        {"lags": {ORDERS: 7}},
        {"level": "debug", "lags": {"orders/0": 7}},
        ("consumer_lag", {"topic": "orders", "partition": "0"}, 7),
    ),
    Case(
        "idle_offsets_committed",
        {"progress": {ORDERS: 9}},
        {"level": "debug", "offsets": {"orders/0": 9}},
        ("last_commit_timestamp_seconds", {}, 1_700_000_000),
    ),
    Case(
        "records_redelivered",
        {"count": 3, "partition": ORDERS},
        {"count": 3, "partition": "orders/0"},
        ("records_skipped_total", {"reason": "redelivered"}, 3),
    ),
    Case(
        "transaction_committed",
        {"settled": BatchResult(offsets={ORDERS: (0, 5)}, records=5)},
        {"outcome": "committed", "records": 5},
        ("transactions_total", {"outcome": "committed"}, 1),
    ),
    Case(
        "dead_letter_written",
        {"coordinates": WHERE, "reason": "KeyError", "attempts": 3, "error": "'id'"},
        {"record": "orders/0/41", "reason": "KeyError", "attempts": 3, "error": "'id'"},
        None,
    ),
    Case(
        "records_left_waiting",
        {"records": 3, "unread": 2, "topic": "orders-retry"},
        {"records": 3, "unread": 2, "topic": "orders-retry"},
        None,
    ),
    Case(
        "batch_aborted",
        {"reason": "broker", "records": 10, "attempt": 2, "rewound_to": {ORDERS: 40}},
        {"reason": "broker", "records": 10, "attempt": 2, "rewound_to": {"orders/0": 40}},
        ("transactions_total", {"outcome": "aborted"}, 1),
    ),
    Case(
        "partition_stuck",
        {"stuck": {ORDERS: Stuck(7, "bad codec")}},
        {
            "level": "critical",
            "partition": "orders/0",
            "offset": 7,
            "reason": "bad codec",
            "skip": "hapax offsets skip orders/0/7 --dead-letter",
        },
        ("partition_stuck", {"topic": "orders", "partition": "0", "offset": "7"}, 1),
    ),
    *(
        Case(
            event,
            {"held": {ORDERS: HeldBack(10, 35), ("orders", 1): HeldBack(0, 2)}},
            {
                "level": "warning",
                "reason": "27 offsets wait for open transactions (orders/0 from 10 to 35,"
                " orders/1 from 0 to 2)",
            },
            None,
        )
        for event in ("open_transactions_awaited", "open_transactions_left")
    ),
    Case(
        "records_isolated",
        {"partition": ORDERS, "first": 5, "until": 9, "deaths": 1},
        {"partition": "orders/0", "first": 5, "until": 9, "deaths": 1},
        ("partitions_isolated_total", {}, 1),
    ),
    Case(
        "crashing_record_found",
        {"coordinates": Coordinates("orders", 0, 7), "how": "SIGSEGV", "deaths": 2},
        {"record": "orders/0/7", "how": "SIGSEGV", "deaths": 2},
        ("crashing_records_total", {}, 1),
    ),
    Case("isolation_failed", {"reason": "no process"}, {"reason": "no process"}, None),
    Case(
        "call_hung",
        {"coordinates": Coordinates("orders", 0, 7), "seconds": 5.0},
        {"level": "critical", "record": "orders/0/7", "seconds": 5.0},
        None,
    ),
    Case(
        "event_loop_blocked",
        {"record": Record("orders", 0, 7, None, b"v")},
        {"level": "warning", "record": "orders/0/7"},
        None,
    ),
    Case(
        "batch_halved",
        {"records_max": 50, "reason": "too large"},
        {"records_max": 50, "reason": "too large"},
        ("batches_halved_total", {}, 1),
    ),
    Case(
        "producer_died",
        {"reason": "epoch", "fenced": True},
        {"reason": "epoch", "fenced": True},
        ("transactions_total", {"outcome": "fenced"}, 1),
    ),
    Case(
        "partitions_unowned",
        {"partitions": [("orders", 3)]},
        {"partitions": ["orders/3"]},
        ("partitions_unowned_total", {}, 1),
    ),
    Case(
        "member_fenced",
        {"reason": "our instance name", "explained": True},
        {"reason": "our instance name", "explained": True},
        ("members_fenced_total", {}, 1),
    ),
    Case(
        "producer_rebuilt",
        {"cause": "fenced", "duration_s": 0.25},
        {"cause": "fenced", "duration_ms": 250.0},
        ("producers_rebuilt_total", {"cause": "fenced"}, 1),
    ),
    Case(
        "in_doubt_fenced",
        {"evidence": "disconnect"},
        {"evidence": "disconnect"},
        ("in_doubt_fences_total", {}, 1),
    ),
    Case(
        "claims_unavailable",
        {"reason": "timeout", "policy": "pause"},
        {"reason": "timeout", "policy": "pause"},
        ("dedup_store_up", {}, 0),
    ),
    Case("claims_recovered", {"outage_s": 4.2}, {"outage_s": 4.2}, ("dedup_store_up", {}, 1)),
    Case(
        "claims_clock_jumped",
        {"seconds": 172_800.0},
        {"level": "error", "seconds": 172_800.0},
        ("dedup_clock_jumps_total", {}, 1),
    ),
    Case(
        "schemas_unavailable",
        {"reason": "503", "partition": ("orders", 3)},
        {"level": "error", "reason": "503", "partition": "orders/3"},
        ("schemas_missing", {}, 1),
    ),
    Case("schemas_recovered", {}, {"outage_s": 0.0}, ("schemas_missing", {}, 0)),
    Case("schema_file_unusable", {"reason": "damaged"}, {"reason": "damaged"}, None),
    Case("claims_lost", {}, {"level": "error"}, ("dedup_claim_losses_total", {}, 1)),
    Case(
        "claims_evicted",
        {"problem": "Redis evicts keys", "evicted": 7},
        {"level": "error", "reason": "Redis evicts keys", "keys": 7},
        ("dedup_keys_evicted_total", {}, 7),
    ),
    Case(
        "librdkafka_logged",
        {"client": "consumer", "level": 40, "facility": "FAIL", "text": "refused"},
        {"client": "consumer", "facility": "FAIL", "text": "refused", "level": "warning"},
        ("librdkafka_errors_total", {"facility": "FAIL"}, 1),
    ),
    Case(
        "library_logged",
        {"library": "shop.rules", "level": 30, "text": "odd price"},
        {"library": "shop.rules", "level": "warning", "text": "odd price"},
        None,
    ),
    Case(
        "spark_logged",
        {"level": 40, "logger": "org.apache.spark.Lost", "text": "executor 1\nis lost"},
        {"level": "error", "logger": "org.apache.spark.Lost", "text": "executor 1 is lost"},
        None,
    ),
    Case(
        "telemetry_failed",
        {"error": TypeError("x")},
        {"error": "TypeError"},
        ("telemetry_failures_total", {}, 1),
    ),
    Case("log_lines_dropped", {}, {"level": "warning", "count": 0}, None),
    Case(
        "log_lines_suppressed",
        {"of": "librdkafka_logged", "about": ["consumer"], "count": 9},
        {"of": "librdkafka_logged", "about": ["consumer"], "count": 9},
        None,
    ),
    Case(
        "lanes_assigned",
        {"lanes": {0: {("orders", 2): 7, ORDERS: None}, 1: {("orders", 1): 0}}},
        {"lanes": {"0": ["orders/0", "orders/2"], "1": ["orders/1"]}},
        None,
    ),
    Case(
        "executors_awaited",
        {"reason": "no executor has answered yet"},
        {"level": "warning", "reason": "no executor has answered yet"},
        None,
    ),
    Case("code_shipped", {"names": ["shop"]}, {"level": "info", "names": ["shop"]}, None),
    Case(
        "executors_ready",
        {"executors": ["0 on node-1"], "versions": {"Python": "3.11.2"}},
        {"executors": ["0 on node-1"], "versions": {"Python": "3.11.2"}},
        None,
    ),
    Case(
        "executor_seen",
        {"executor": "node-1", "record_path": "native (librdkafka 2.16.0)"},
        {"executor": "node-1", "record_path": "native (librdkafka 2.16.0)"},
        None,
    ),
    Case(
        "executors_changed",
        {"executors": [IDLE, msgspec.structs.replace(IDLE, name="driver", cores=0)], "ui": ""},
        {"level": "info", "executors": {"1": "10.0.0.9:40001"}, "cores": 4},
        ("executors", {}, 1),
    ),
    Case(
        "range_started",
        {"lane": 3, "positions": {ORDERS: 40}, "ends": {ORDERS: 45}, "attempt": 2},
        {"level": "debug", "lane": 3, "attempt": 2, "offsets": {"orders/0": [40, 45]}},
        ("ranges_in_flight", {}, 1),
    ),
    Case(
        "range_completed",
        {
            "lane": 3,
            "outcome": "done",
            "spans": {ORDERS: (40, 45)},
            "transactions": 2,
            "records": 5,
            "open_s": 0.05,
            "work_s": 0.25,
            "round_s": 0.5,
        },
        {
            "level": "info",
            "lane": 3,
            "outcome": "done",
            "offsets": {"orders/0": [40, 45]},
            "transactions": 2,
            "records": 5,
            "open_ms": 50.0,
            "work_ms": 250.0,
            "round_ms": 500.0,
        },
        ("ranges_total", {"outcome": "done"}, 1),
    ),
    Case(
        "task_lost",
        {"lane": 1, "reason": "worker crashed", "failures": 2, "starts": {ORDERS: 40}},
        {
            "level": "warning",
            "lane": 1,
            "reason": "worker crashed",
            "failures": 2,
            "starts": {"orders/0": 40},
        },
        ("tasks_lost_total", {}, 1),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.event)
def test_an_event_makes_the_line_of_its_name_and_moves_its_metric(case, told):
    getattr(told.events, case.event)(**case.facts)
    (line,) = told.lines
    bound = {"event": case.event, "app": "shop", "instance": "shop-0"}
    assert line.items() >= (bound | case.line).items()
    if case.sample:
        name, labels, expected = case.sample
        assert told.value(name, **labels) == expected


def test_a_consumer_that_no_broker_answers_is_told_once_and_once_more_when_one_does(told):
    for answered in (True, False, False, True, True):
        told.events.consumer_answered(answered=answered)
    events = [(line["event"], line["level"]) for line in told.lines]
    assert events == [("consumer_unanswered", "error"), ("consumer_answered", "info")]


def test_every_event_has_a_case():
    methods = {name for name, _ in inspect.getmembers(Events, inspect.isfunction)}
    events = {name for name in methods if not name.startswith("_")}
    # Called each time round; a line for what expires soon alone; numbers that are told often; a
    # line that cannot be written.
    often = {"calls_observed", "loop_moved", "certificates_seen", "records_wait"}
    silent = {*often, "consumer_answered", "log_line_dropped"}
    assert events - silent == {case.event for case in CASES}


def test_how_many_records_wait_is_a_gauge_without_a_line():
    told = Told("info")
    told.events.records_wait(4)
    assert told.lines == []
    assert told.metrics.registry.get_sample_value("hapax_records_waiting") == 4


def test_ranges_are_counted_also_where_the_log_is_quiet():
    told = Told("warning")
    told.events.range_completed(
        0, "aborted", {}, transactions=0, records=7, open_s=0.5, work_s=1.0, round_s=2.0
    )
    assert told.lines == []
    assert told.value("ranges_total", outcome="aborted") == 1
    assert told.value("range_records_sum") == 7
    for step, seconds in (("open", 0.5), ("work", 1.0), ("round", 2.0)):
        assert told.value("range_duration_seconds_sum", step=step) == seconds
