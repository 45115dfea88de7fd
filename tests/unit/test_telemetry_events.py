"""Each event makes the line of its name and moves its metric."""

import inspect
import io
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import pytest
from prometheus_client import generate_latest

from hapax.cluster.lag import PartitionLag, ReaderLag
from hapax.cluster.micro_batches import Numbers
from hapax.cluster.partition_offsets import HeldBack, LogOffsets
from hapax.core.ports import Stuck
from hapax.core.records import Coordinates, Record
from hapax.processing.batch_result import BatchResult
from hapax.settings.secrets import Strike
from hapax.telemetry.events import Events
from hapax.telemetry.health import Executor, Health
from hapax.telemetry.logs import Format, Level, configure_logs
from hapax.telemetry.metrics import Metrics

ORDERS = ("orders", 0)
WHERE = Coordinates("orders", 0, 41)

TRACED = BatchResult(offsets={ORDERS: (0, 5)}, records=5, trace=("0af7", "b7ad"))
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

    def __init__(self, level: Level = "debug", form: Format = "json", **logs: Any) -> None:
        self.monotonic_s = 1_000.0
        self.wall_s = 1_700_000_000.0
        self._bytes = io.BytesIO()
        self.stream = io.TextIOWrapper(self._bytes, write_through=True)
        self.metrics = Metrics("shop")
        self.health = Health(30.0, lambda: self.monotonic_s)
        logs |= {"stream": self.stream, "app": "shop", "instance": "shop-0"}
        logger = configure_logs(level, form, **logs)
        self.events = Events(self.metrics, self.health, logger, lambda: self.wall_s)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._bytes.getvalue().splitlines()]

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"hapax_{name}", labels)


NOTHING: Mapping[str, Any] = MappingProxyType({})
SCHEMA = (
    "@timestamp", "log.level", "message", "ecs.version", "event.action", "event.dataset",
    "service.name", "service.version", "service.node.name", "log.logger", "trace.id", "span.id",
    "error.type", "error.message", "error.stack_trace",
)  # fmt: skip
"""Fields of ECS that lines have, all of them texts there; the first eight are in each."""


class Case(NamedTuple):
    """``told``: what its line repeats, in words; ``line``: what it has as well; ``facts``: what
    else was given.
    """

    event: str
    told: Mapping[str, Any] = NOTHING
    line: Mapping[str, Any] = NOTHING
    facts: Mapping[str, Any] = NOTHING
    sample: str = ""


def in_words(value: Any) -> Any:
    """Return what a line has of a value: places by their names, several of them in order."""
    match value:
        case Coordinates():
            return str(value)
        case (str(topic), int(partition)):
            return f"{topic}/{partition}"
        case [(str(), int()), *_]:
            return [in_words(place) for place in sorted(value)]
        case {}:
            return {key if isinstance(key, str) else in_words(key): value[key] for key in value}
        case _:
            return value


DEBUG, INFO, WARNING, ERROR, CRITICAL = (
    {"level": level} for level in ("debug", "info", "warning", "error", "critical")
)
HELD = "27 offsets wait for open transactions (orders/0 from 10 to 35, orders/1 from 0 to 2)"
NUMBERS = Numbers(
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
CASES = [
    Case(
        "service_started",
        {"settings": {"HAPAX_APP": "shop"}, "version": "1", "record_path": "native (librdkafka 2)"},
        facts={"engine": "worker", "librdkafka": "2"},
    ),
    Case("preflight_passed", line=INFO | {"remarks": []}),
    Case("preflight_passed", {"remarks": ["one replica"]}, WARNING),
    Case("preflight_refused", {"problems": ["no", "b"]}, {"message": "Preflight refused: no; b"}),
    Case("service_ready", line=INFO),
    Case("query_started", {"query": "q", "run": "r", "checkpoint": "/c"}),
    Case(
        "micro_batch_completed",
        line={
            "number": 3,
            "records": 12,
            "outputs": {"totals": 2},
            "lag": {"orders/0": 7},
            "late": 1,
        },
        facts={"numbers": NUMBERS},
        sample="state_rows 40.0",
    ),
    Case("records_without_timestamp", {"records": 10, "late": 9}, WARNING),
    Case("marker_refreshed", line=INFO | {"next": 7}, facts={"number": 7}),
    Case("producer_init_retried", {"reason": "timed out"}, ERROR, sample="brokers_awaited_total"),
    Case(
        "lane_open_retried",
        {"reason": "timed out"},
        ERROR | {"partition": "orders/0"},
        facts={"where": ORDERS},
        sample="brokers_awaited_total",
    ),
    Case(
        "outputs_cluster_met",
        {"servers": "there:9092"},
        INFO | {"cluster": "id-of-there"},
        facts={"cluster_id": "id-of-there"},
    ),
    Case("brokers_reached", line=INFO | {"outage_s": 0.0}),
    Case(
        "brokers_unreachable",
        line=ERROR | {"reason": "no broker has answered since 22:13:20 (kafka:9092: refused)"},
        facts={"places": "kafka:9092: refused"},
        sample="brokers_awaited_total",
    ),
    Case(
        "lag_updated",
        line={"partition_lags": {"out/0": OUT_LAG.log_figures()}},
        facts={"partition_lags": [OUT_LAG], "at_s": 1_700_000_000.0, "complete": True},
        sample='last_stable_offset_lag{partition="0",topic="out"} 3.0',
    ),
    Case("lag_monitor_limited", {"remark": "a right"}, INFO),
    Case("lag_monitor_failed", {"reason": "timed out"}, WARNING, sample="lag_monitor_errors_total"),
    Case(
        "reader_lag_updated",
        {"group": "billing"},
        {"lags": {"out/0": 9}},
        facts={"lags": [READER_LAG]},
        sample='reader_lag_records_max{group="billing",partition="0",topic="out"} 9.0',
    ),
    Case("reader_lag_failed", {"group": "billing", "reason": "timed out"}, WARNING),
    Case(
        "native_route_lost", {"partitions": [("in", 3)]}, WARNING, sample="native_routes_lost_total"
    ),
    Case("native_path_left", {"reason": "other ids"}, ERROR, sample="native_path_left"),
    Case("intake_paused", line=WARNING, sample="paused"),
    Case("intake_resumed", line=INFO | {"paused_s": 0.0}, sample="paused 0.0"),
    *(
        Case(
            "client_files_changed",
            {"files": ["/run/ca.pem"]},
            level | {"restart_needed": restart},
            facts={"restart": restart},
        )
        for restart, level in ((False, INFO), (True, WARNING))
    ),
    Case("client_files_refused", {"files": ["/run/ca.pem"], "problem": "it is empty"}, ERROR),
    Case("batch_abandoned", {"reason": "unresolved"}),
    Case("outputs_lost", {"messages": 3, "reason": "too large"}, ERROR),
    Case("service_draining", {"reason": "SIGTERM"}, {"message": "Service draining: SIGTERM"}),
    Case("service_stopped", {"exit_code": 4, "reason": "twin"}, ERROR),
    Case("service_stopped", {"exit_code": 0, "reason": "drained"}, INFO),
    Case("service_crashed", line={"error": "ValueError"}, facts={"error": ValueError("no")}),
    Case(
        "watchdog_fired",
        {"call": "commit", "seconds": 61.0},
        CRITICAL | {"exit_code": 7},
        sample='watchdog_fired_total{call="commit"}',
    ),
    *(
        Case(
            f"partitions_{kind}",
            {"partitions": partitions},
            level | {"ours": ours},
            sample=f'rebalances_total{{kind="{kind}"}}',
        )
        for kind, partitions, level, ours in (
            ("assigned", [("orders", 1), ORDERS], INFO, 2),
            ("revoked", [ORDERS], INFO, 0),
            ("lost", [ORDERS], WARNING, 0),
        )
    ),
    Case(
        "lag_observed",
        {"lags": {ORDERS: 7}},
        DEBUG,
        sample='consumer_lag{group="shop",partition="0",topic="orders"} 7.0',
    ),
    Case(
        "idle_offsets_committed",
        line=DEBUG | {"offsets": {"orders/0": 9}},
        facts={"progress": {ORDERS: 9}},
        sample="last_commit_timestamp_seconds 1.7e+09",
    ),
    Case(
        "records_redelivered",
        {"count": 3, "partition": ORDERS},
        sample='records_skipped_total{reason="redelivered"} 3.0',
    ),
    Case(
        "transaction_committed",
        line={"records": 5, "message": "Transaction committed (records: 5)"},
        facts={"settled": BatchResult(offsets={ORDERS: (0, 5)}, records=5)},
        sample='transactions_total{outcome="committed"}',
    ),
    Case(
        "dead_letter_written",
        {"reason": "KeyError", "attempts": 3, "error": "'id'"},
        {"record": "orders/0/41"},
        facts={"coordinates": WHERE},
    ),
    Case("records_left_waiting", {"records": 3, "unread": 2, "topic": "orders-retry"}),
    Case(
        "batch_aborted",
        {"reason": "broker", "records": 10, "attempt": 2, "rewound_to": {ORDERS: 40}},
        sample='transactions_total{outcome="aborted"}',
    ),
    Case(
        "partition_stuck",
        line=CRITICAL
        | {
            "partition": "orders/0",
            "offset": 7,
            "message": "Partition stuck (orders/0): bad codec",
            "skip": "hapax offsets skip orders/0/7 --dead-letter",
        },
        facts={"stuck": {ORDERS: Stuck(7, "bad codec")}},
        sample='partition_stuck_offset{partition="0",topic="orders"} 7.0',
    ),
    *(
        Case(
            event,
            line=WARNING | {"reason": HELD},
            facts={"held": {ORDERS: HeldBack(10, 35), ("orders", 1): HeldBack(0, 2)}},
        )
        for event in ("open_transactions_awaited", "open_transactions_left")
    ),
    Case(
        "records_isolated",
        {"partition": ORDERS, "first": 5, "until": 9, "deaths": 1},
        sample="partitions_isolated_total",
    ),
    Case(
        "crashing_record_found",
        {"how": "SIGSEGV", "deaths": 2},
        {"record": "orders/0/41"},
        facts={"coordinates": WHERE},
        sample="crashing_records_total",
    ),
    Case("isolation_failed", {"reason": "no process"}),
    Case(
        "call_hung",
        {"seconds": 5.0},
        CRITICAL | {"record": "orders/0/41", "exit_code": 8},
        facts={"coordinates": WHERE},
    ),
    Case(
        "event_loop_blocked",
        line=WARNING | {"record": "orders/0/41"},
        facts={"record": Record(*WHERE, None, b"v")},
    ),
    Case("batch_halved", {"records_max": 50, "reason": "too large"}, sample="batches_halved_total"),
    *(
        Case("producer_died", {"reason": "epoch", "fenced": fenced}, ERROR, sample=sample)
        for fenced, sample in (
            (True, 'transactions_total{outcome="fenced"}'),
            (False, 'transactions_total{outcome="fenced"} 0.0'),
            (False, 'transactions_total{outcome="fatal"}'),
        )
    ),
    Case("partitions_unowned", {"partitions": [("orders", 3)]}, sample="partitions_unowned_total"),
    Case("member_fenced", {"reason": "our name", "explained": True}, sample="members_fenced_total"),
    Case(
        "producer_rebuilt",
        {"cause": "fenced"},
        {"duration_ms": 250.0},
        facts={"duration_s": 0.25},
        sample='producers_rebuilt_total{cause="fenced"}',
    ),
    Case("in_doubt_fenced", {"evidence": "disconnect"}, sample="in_doubt_fences_total"),
    Case(
        "claims_unavailable", {"reason": "timeout", "policy": "pause"}, sample="dedup_store_up 0.0"
    ),
    Case("claims_recovered", {"outage_s": 4.2}, sample="dedup_store_up"),
    Case("claims_clock_jumped", {"seconds": 172_800.0}, ERROR, sample="dedup_clock_jumps_total"),
    Case("state_awaited", {"partitions": [("orders", 3)]}),
    Case(
        "state_restored",
        {"partition": ("orders", 3), "changes": 5},
        {"seconds": 0.25},
        facts={"lasted_s": 0.25},
        sample="state_changes_restored_total 5.0",
    ),
    Case("state_unread", {"partition": ("orders", 3), "reason": "no leader"}, ERROR),
    Case(
        "schemas_unavailable",
        {"reason": "503", "partition": ("orders", 3)},
        ERROR,
        sample="schemas_missing",
    ),
    Case("schemas_recovered", line={"outage_s": 0.0}, sample="schemas_missing 0.0"),
    Case("schema_file_unusable", {"reason": "damaged"}),
    Case("claims_lost", line=ERROR, sample="dedup_claim_losses_total"),
    Case(
        "claims_evicted",
        line=ERROR | {"reason": "Redis evicts keys", "keys": 7},
        facts={"problem": "Redis evicts keys", "evicted": 7},
        sample="dedup_keys_evicted_total 7.0",
    ),
    Case(
        "librdkafka_logged",
        {"client": "consumer", "facility": "FAIL", "text": "refused"},
        WARNING | {"message": "refused"},
        facts={"level": 40},
        sample='librdkafka_errors_total{facility="FAIL"}',
    ),
    Case("library_logged", {"library": "shop.rules", "text": "odd price"}, WARNING, {"level": 30}),
    Case(
        "spark_logged",
        {"logger": "org.apache.spark.Lost"},
        ERROR | {"text": "executor 1 is lost"},
        facts={"level": 40, "text": "executor 1\nis lost"},
    ),
    Case(
        "telemetry_failed",
        line={"error": "TypeError"},
        facts={"error": TypeError("x")},
        sample="telemetry_failures_total",
    ),
    Case("log_lines_dropped", line=WARNING | {"count": 0}),
    Case("log_lines_suppressed", {"of": "librdkafka_logged", "about": ["consumer"], "count": 9}),
    Case(
        "lanes_assigned",
        line={"lanes": {"0": ["orders/0", "orders/2"], "1": ["orders/1"]}},
        facts={"lanes": {0: {("orders", 2): 7, ORDERS: None}, 1: {("orders", 1): 0}}},
    ),
    Case("executors_awaited", {"reason": "no executor has answered yet"}, WARNING),
    Case("code_shipped", {"names": ["shop"]}, INFO),
    Case("executors_ready", {"executors": ["0 on node-1"], "versions": {"Python": "3.11.2"}}),
    Case("executor_seen", {"executor": "node-1", "record_path": "native (librdkafka 2.16.0)"}),
    Case(
        "executors_changed",
        line=INFO | {"executors": {"1": "10.0.0.9:40001"}, "cores": 4},
        facts={
            "executors": [IDLE, msgspec.structs.replace(IDLE, name="driver", cores=0)],
            "ui": "",
        },
        sample="executors",
    ),
    Case(
        "range_started",
        {"lane": 3, "attempt": 2},
        DEBUG | {"offsets": {"orders/0": [40, 45]}},
        facts={"positions": {ORDERS: 40}, "ends": {ORDERS: 45}},
        sample="ranges_in_flight",
    ),
    Case(
        "range_completed",
        {"lane": 3, "outcome": "done", "transactions": 2, "records": 5},
        INFO
        | {"offsets": {"orders/0": [40, 45]}, "open_ms": 50.0, "work_ms": 250.0, "round_ms": 500.0},
        facts={"spans": {ORDERS: (40, 45)}, "open_s": 0.05, "work_s": 0.25, "round_s": 0.5},
        sample='ranges_total{outcome="done"}',
    ),
    Case(
        "task_lost",
        {"lane": 1, "reason": "worker crashed", "failures": 2, "starts": {ORDERS: 40}},
        WARNING,
        sample="tasks_lost_total",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.event)
def test_an_event_makes_the_line_of_its_name_and_moves_its_metric(case, told):
    getattr(told.events, case.event)(**case.told, **case.facts)
    (line,) = told.lines
    bound = {"event": case.event, "app": "shop", "instance": "shop-0"}
    words = {name: in_words(value) for name, value in case.told.items()}
    assert line.items() >= (bound | words | case.line).items()
    if case.sample:
        exposed = generate_latest(told.metrics.registry).decode().splitlines()
        assert f"hapax_{case.sample}" in exposed or f"hapax_{case.sample} 1.0" in exposed


def kind(value: Any) -> str:
    """Return the type that an index gives a field; nothing for what leaves it open."""
    if isinstance(value, list | None):
        return kind(value[0]) if value else ""
    return {int: "number", float: "number"}.get(type(value), type(value).__name__)


def test_a_line_for_elastic_has_the_schemas_fields_and_each_of_ours_one_type_in_all_events():
    told = Told(form="ecs", engine="worker", version="1.2.3")
    kinds: dict[str, set[str]] = defaultdict(set)
    for case in CASES:
        getattr(told.events, case.event)(**case.told, **case.facts)
    told.events.transaction_committed(TRACED)
    told.events.library_logged("shop.rules", 40, "odd", ValueError("price\n-1"))
    always = {*SCHEMA[:8], "hapax"}
    for line in told.lines:
        own = line["hapax"]
        assert list(line)[:3] == ["@timestamp", "log.level", "message"]
        assert always <= line.keys() <= always | {*SCHEMA}
        assert {kind(value) for name, value in line.items() if name != "hapax"} == {"str"}
        for name, value in own.items():
            kinds[name].add(kind(value))
    assert {name: found for name, found in kinds.items() if len(found - {""}) > 1} == {}
    assert {name for name, found in kinds.items() if "dict" in found} == {"latency_ms", "phases_ms"}
    traced, logged = told.lines[-2:]
    error = {"error.type": "ValueError", "error.message": "price\n-1", "message": "odd"}
    assert logged.items() >= (error | {"log.logger": "shop.rules"}).items()
    assert logged["error.stack_trace"].endswith("ValueError: price\n-1")
    where = {"trace.id": "0af7", "span.id": "b7ad", "event.dataset": "shop.log"}
    service = {"name": "shop", "node.name": "shop-0", "version": "1.2.3"}
    assert traced.items() >= (where | {f"service.{k}": v for k, v in service.items()}).items()
    assert traced["hapax"]["offsets"] == '{"orders/0":[0,5]}'


@pytest.mark.parametrize(("project", "path"), [("", ""), ("p1", "projects/p1/traces/")])
def test_a_line_for_google_cloud_has_its_special_fields_and_ours_as_they_are(
    monkeypatch, project, path
):
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", project)
    told = Told(form="gcp", engine="worker", version="1.2.3")
    told.events.transaction_committed(TRACED)
    told.events.library_logged("shop.rules", 40, "odd", ValueError("price"))
    traced, logged = told.lines
    assert (traced["severity"], logged["severity"]) == ("DEBUG", "WARNING")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", traced["time"])
    assert (traced["event"], logged["message"]) == ("transaction_committed", "odd")
    assert traced["offsets"] == {"orders/0": [0, 5]}
    assert traced["serviceContext"] == {"service": "shop", "version": "1.2.3"}
    special = {name.partition("/")[2]: value for name, value in traced.items() if "/" in name}
    labels = {"app": "shop", "instance": "shop-0", "engine": "worker"}
    assert special == {"labels": labels, "trace": f"{path}0af7", "spanId": "b7ad"}
    assert logged["stack_trace"].endswith("ValueError: price")
    assert {"level", "timestamp", "exception", "trace_id"}.isdisjoint({*traced, *logged})


@pytest.mark.parametrize("form", ["json", "ecs", "gcp", "console"])
def test_no_form_of_lines_shows_a_secret_in_texts_fields_and_tracebacks(form):
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, write_through=True)
    logger = configure_logs("info", form, stream=stream, strike=Strike({"hunter2-secret"}))
    error = ValueError("refused: hunter2-secret")
    fields = {"text": "as hunter2-secret", "fields": {"a": "hunter2-secret"}}
    logger.error("library_logged", exc_info=error, **fields)
    stream.flush()
    written = buffer.getvalue()
    assert (b"hunter2" in written, written.count(b"***") >= 3) == (False, True)


def test_a_consumer_that_no_broker_answers_is_told_once_and_once_more_when_one_does(told):
    for answered in (True, False, False, True, True):
        told.events.consumer_answered(answered=answered)
    events = [(line["event"], line["level"]) for line in told.lines]
    assert events == [("consumer_unanswered", "error"), ("consumer_answered", "info")]


def test_a_claim_store_that_would_forget_has_a_line_where_that_is_new_and_a_gauge_meanwhile(told):
    gauge = []
    for reason in ("snapshots", "snapshots", "nothing", "nothing", "", "snapshots"):
        told.events.claims_volatile(reason)
        gauge.append(told.value("dedup_store_volatile"))
    assert gauge == [1, 1, 1, 1, 0, 1]
    lines = [(line["event"], line["level"], line["reason"]) for line in told.lines]
    assert lines == [("claims_volatile", "error", why) for why in ("nothing", "snapshots")]


def test_every_event_has_a_case():
    methods = {name for name, _ in inspect.getmembers(Events, inspect.isfunction)}
    events = {name for name in methods if not name.startswith("_")}
    # Called each time round; a line for what expires soon alone; numbers that are told often; a
    # line that cannot be written.
    often = {"calls_observed", "loop_moved", "certificates_seen", "records_wait"}
    often |= {"state_measured"}
    silent = {*often, "consumer_answered", "claims_volatile", "log_line_dropped"}
    assert events - silent == {case.event for case in CASES}


def test_records_that_wait_have_no_line_and_ranges_are_counted_also_where_the_log_is_quiet():
    told = Told("info")
    told.events.records_wait(4)
    assert told.lines == []
    assert told.value("records_waiting") == 4
    told = Told("warning")
    told.events.range_completed(
        0, "aborted", {}, transactions=0, records=7, open_s=0.5, work_s=1.0, round_s=2.0
    )
    assert told.lines == []
    assert told.value("ranges_total", outcome="aborted") == 1
    assert told.value("range_records_sum") == 7
    for step, seconds in (("open", 0.5), ("work", 1.0), ("round", 2.0)):
        assert told.value("range_duration_seconds_sum", step=step) == seconds
