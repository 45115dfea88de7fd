"""Probes: what they answer, why, and which events change it."""

import os

import msgspec
import pytest

from hapax.core.ports import Stuck
from hapax.telemetry.events import Events
from hapax.telemetry.logs import configure_logs
from tests.unit.test_telemetry_events import ORDERS, Told
from tests.unit.test_telemetry_survey import OURS

STARTING = "starting: transactions are not initialised yet"
UNASSIGNED = "waiting for the first assignment of partitions"


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def ready(told):
    told.events.service_ready()
    told.events.partitions_assigned([ORDERS])
    assert told.health.readyz() == (True, [])
    return told


def test_a_service_that_starts_is_alive_and_says_what_it_waits_for(told):
    assert told.health.livez() == (True, [])
    assert told.health.startupz() == (False, [STARTING])
    assert told.health.readyz() == (False, [STARTING, UNASSIGNED])


def test_ready_begins_with_the_first_assignment(told):
    told.events.service_ready()
    assert told.health.startupz() == (True, [])
    assert told.health.readyz() == (False, [UNASSIGNED])
    told.events.partitions_assigned([])
    assert told.health.readyz() == (True, [])


def test_a_member_whose_partitions_moved_on_stays_ready(ready):
    ready.events.partitions_revoked([ORDERS])
    assert ready.health.readyz() == (True, [])


def test_a_stuck_partition_ends_readiness_and_has_its_series_until_it_moves(ready):
    labels = {"topic": "orders", "partition": "0"}
    ready.events.partition_stuck({ORDERS: Stuck(7, "bad codec")})
    (reason,) = ready.health.readyz().reasons
    assert "orders/0 is stuck: the set at offset 7 cannot be read (bad codec)" in reason
    assert "hapax offsets skip orders/0/7 --dead-letter" in reason
    assert ready.health.state() == "stuck"
    assert ready.health.livez().ok
    ready.events.partition_stuck({ORDERS: Stuck(9, "bad codec")})
    assert ready.value("partition_stuck", **labels, offset="7") is None
    assert ready.value("partition_stuck", **labels, offset="9") == 1
    ready.events.partition_stuck({})
    assert ready.value("partition_stuck", **labels, offset="9") is None
    assert ready.health.readyz() == (True, [])
    assert ready.health.state() == "running"


def test_draining_ends_readiness_and_not_life(ready):
    ready.events.service_draining("SIGTERM")
    assert ready.health.readyz() == (False, ["draining"])
    assert ready.health.livez().ok
    assert ready.health.startupz().ok


def test_a_loop_that_stands_still_past_the_limit_is_not_alive(ready):
    ready.events.loop_moved()
    ready.monotonic_s += 30
    assert ready.health.livez().ok
    ready.monotonic_s += 0.5
    reasons = ["the loop has not moved for 30.5 s (limit 30 s)"]
    assert ready.health.livez() == (False, reasons)
    ready.events.loop_moved()
    assert ready.health.livez().ok


def test_a_loop_that_waits_for_brokers_is_alive_and_not_ready(ready):
    ready.events.loop_moved()
    ready.monotonic_s += 6
    assert ready.health.readyz() == (False, ["the loop has not moved for 6 s"])
    assert ready.health.livez().ok
    ready.events.loop_moved()
    assert ready.health.readyz() == (True, [])


def test_failures_without_a_success_among_them_end_readiness(ready):
    for _ in range(5):
        assert ready.health.readyz() == (True, [])
        ready.events.batch_aborted("NOT_ENOUGH_REPLICAS", 3, 1, {ORDERS: 5})
        ready.monotonic_s += 0.7
    reasons = ["nothing has been committed for 4 s of failures"]
    assert ready.health.readyz() == (False, reasons)
    assert ready.health.livez().ok
    ready.events.idle_offsets_committed({ORDERS: 5})
    assert ready.health.readyz() == (True, [])


def test_failures_are_forgotten_when_there_is_nothing_more_to_do(ready):
    for wait_s in (4, 9):
        ready.events.producer_init_retried("none answers")
        ready.monotonic_s += wait_s
    assert not ready.health.readyz().ok
    ready.monotonic_s += 2
    assert ready.health.readyz() == (True, [])


def test_a_claim_store_that_deletes_claims_is_named_as_such_until_it_keeps_them(ready):
    ready.events.claims_evicted("Redis evicts keys", 0)
    assert ready.health.readyz().ok, "what follows from it is for the engine to say"
    ready.events.claims_unavailable("Redis evicts keys", "pause")
    reasons = ["the claim store deletes claims", "Redis evicts keys, since 22:13:20"]
    assert ready.health.readyz() == (False, reasons)
    ready.events.claims_evicted("", 0)
    ready.events.claims_recovered(3.0)
    assert ready.health.readyz().ok


def test_claims_that_are_away_end_readiness_under_pause(ready):
    ready.events.claims_unavailable("timeout", "pause")
    assert ready.health.readyz() == (
        False,
        ["the claim store does not answer", "timeout, since 22:13:20"],
    )
    assert ready.health.livez().ok
    ready.events.claims_recovered(3.0)
    assert ready.health.readyz().ok


def test_claims_that_are_away_change_nothing_under_pass(ready):
    ready.events.claims_unavailable("timeout", "pass")
    assert ready.health.readyz() == (True, [])
    assert ready.value("dedup_store_up") == 0


def test_an_outage_of_claims_is_told_once_a_minute_and_counted_each_time(ready):
    for _ in range(5):
        ready.events.claims_unavailable("timeout", "pause")
    told = [line for line in ready.lines if line["event"] == "claims_unavailable"]
    assert len(told) == 1
    assert ready.value("dedup_lookups_total", result="error") == 5


def test_assignments_add_up_and_losses_take_away(told):
    told.events.partitions_assigned([ORDERS, ("orders", 1)])
    told.events.partitions_assigned([("orders", 2)])
    assert told.value("assigned_partitions") == 3
    told.events.partitions_revoked([ORDERS])
    told.events.partitions_lost([("orders", 1), ("orders", 9)])
    assert told.health.partitions == {("orders", 2)}
    assert told.value("assigned_partitions") == 1


def test_the_lag_of_a_partition_that_went_away_is_not_shown_any_more(told):
    told.events.partitions_assigned([ORDERS, ("orders", 1)])
    told.events.lag_updated(
        [OURS, msgspec.structs.replace(OURS, partition=1)], told.wall_s, complete=True
    )
    told.events.partitions_revoked([ORDERS])
    assert told.value("consumer_lag", topic="orders", partition="0") is None
    assert told.value("consumer_lag", topic="orders", partition="1") == OURS.lag


def test_a_producer_that_died_unfenced_is_fatal(told):
    told.events.producer_died("out of order", fenced=False)
    assert told.value("transactions_total", outcome="fatal") == 1
    assert told.value("transactions_total", outcome="fenced") == 0


def test_leaving_in_peace_is_no_error(told):
    told.events.service_stopped(0, "drained")
    assert told.lines[0]["level"] == "info"


def test_remarks_of_preflight_are_warnings(told):
    told.events.preflight_passed(["one replica"])
    assert told.lines[0].items() >= {"level": "warning", "remarks": ["one replica"]}.items()


def test_settings_are_logged_as_given_and_the_build_becomes_a_metric(told):
    told.events.service_started(
        {"HAPAX_KAFKA__SECURITY__PASSWORD": "***"},
        version="1",
        engine="spark",
        librdkafka="2",
        record_path="python (HAPAX_FAST=off)",
    )
    assert told.lines[0]["settings"] == {"HAPAX_KAFKA__SECURITY__PASSWORD": "***"}
    python = told.lines[0]["python"]
    labels = {"version": "1", "engine": "spark", "python": python, "librdkafka": "2"}
    assert told.value("build_info", **labels) == 1


def test_the_last_poll_is_known_without_work_in_the_loop(told):
    told.events.service_started(
        {}, version="1", engine="worker", librdkafka="2", record_path="python (HAPAX_FAST=off)"
    )
    assert told.value("last_poll_timestamp_seconds") == 0
    told.events.loop_moved()
    told.monotonic_s += 5
    told.wall_s += 5
    assert told.value("last_poll_timestamp_seconds") == 1_700_000_000
    assert [line["event"] for line in told.lines] == ["service_started"]


def test_the_watchdog_does_not_wait_for_a_stdout_that_hangs(monkeypatch):
    reader, writer = os.pipe()
    told = Told()
    with os.fdopen(writer, "w") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        logger = configure_logs("info", "json")
    logger.info("more than any pipe holds", text="x" * (1 << 20))
    monkeypatch.setattr("hapax.telemetry.line_queue.flush_lines.__defaults__", (0.01,))
    Events(told.metrics, told.health, logger).watchdog_fired("commit", 61)
    assert told.value("watchdog_fired_total", call="commit") == 1
    os.close(reader)


def test_lines_that_were_dropped_are_counted_and_told_once_when_one_comes_through(told):
    for _ in range(3):
        told.events.log_line_dropped()
    assert told.value("log_lines_dropped_total") == 3
    told.events.log_lines_dropped()
    (line,) = told.lines
    assert (line["event"], line["level"], line["count"]) == ("log_lines_dropped", "warning", 3)


def test_readiness_is_a_metric_too(told):
    told.events.service_started(
        {}, version="1", engine="worker", librdkafka="2", record_path="python (HAPAX_FAST=off)"
    )
    assert told.value("ready") == 0
    told.events.service_ready()
    told.events.partitions_assigned([ORDERS])
    assert told.value("ready") == 1
    told.events.service_draining("SIGTERM")
    assert told.value("ready") == 0
