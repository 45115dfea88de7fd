"""The status page and its JSON: what they show, and what they must never show."""

import base64
import hashlib
import json
import math
import re

import msgspec
import pytest

from hapax.commands.offsets import figures
from hapax.core.changes import Stuck
from hapax.core.lag import PartitionLag
from hapax.core.micro_batches import Numbers
from hapax.core.partition_offsets import HeldBack, LogOffsets
from hapax.core.records import Record
from hapax.operations.offsets import Look
from hapax.telemetry.http.page import HEADERS, page
from tests.kit.status_page import Page, Told
from tests.unit.test_telemetry_events import IDLE, ORDERS, OUT_LAG, WHERE
from tests.unit.test_telemetry_survey import OURS

DASH = "\N{EN DASH}"
EVIL = '<script>alert("1")</script>&\'"><b>'


@pytest.fixture
def told():
    return Told()


def test_a_process_that_has_just_started_shows_that_and_what_it_waits_for(told):
    assert told.status["state"] == "starting"
    assert told.status["last_transaction"] is None
    text = told.page.text
    assert "starting: transactions are not initialised yet" in text
    assert "none yet" in text


def test_outputs_that_go_to_another_cluster_show_its_brokers_and_its_id_once_it_answered():
    assert Told().status["outputs_cluster"] is None
    assert "outputs go to" not in Told().page.text
    told = Told(outputs_at="there:9092")
    assert told.status["outputs_cluster"] == {"servers": "there:9092", "id": None}
    assert "there:9092 has not answered yet" in told.page.text
    told.events.outputs_cluster_met("there:9092", "id-of-there")
    assert told.status["outputs_cluster"] == {"servers": "there:9092", "id": "id-of-there"}
    assert "there:9092 id-of-there" in told.page.text


def test_a_worker_that_works_shows_who_it_is_and_what_it_did(told):
    told.work()
    told.wall_s += 7_200
    status = told.status
    assert status["state"] == "running"
    assert (status["transactional_id"], status["guarantee"]) == ("shop-shop-0", "exactly_once")
    assert status["uptime_s"] == 7_200
    assert status["build"]["librdkafka"] == "2.16.1"
    assert (
        status["last_transaction"].items()
        >= {
            "records": 9,
            "outputs": 6,
            "duplicates": 2,
            "dead_letters": 1,
            "outcome": "committed",
            "phases_ms": {"identify": 1.0, "claim": 2.0, "commit": 4.0},
        }.items()
    )
    assert (
        status["totals"].items()
        >= {
            "records_in": 9,
            "records_out": 6,
            "duplicates": 2,
            "filtered": 1,
            "dead_letters": 1,
            "transactions_committed": 1,
            "transactions_aborted": 0,
        }.items()
    )
    text = told.page.text
    for told_here in ("shop running", "up for 2.0 h", "9 in, 6 out", "librdkafka 2.16.1"):
        assert told_here in text


def test_each_partition_shows_all_its_marks(told):
    told.work()
    (mine,), (written,) = told.status["partitions"], told.status["outputs"]
    assert mine == {
        "topic": "orders",
        "partition": 0,
        "log_start": 0,
        "committed": 5,
        "position": 7,
        "last_stable": 9,
        "high_watermark": 9,
        "last_stable_offset_lag": 0,
        "lag": 4,
        "lost": 0,
        "lag_seconds": 60.0,
        "stuck": None,
        "retention_margin_seconds": 3600.0,
        "open_transaction_seconds": 0.0,
        "seen_s_ago": 0.0,
    }
    assert (
        written.items()
        >= {
            "topic": "out",
            "log_start": 1,
            "last_stable": 5,
            "high_watermark": 8,
            "last_stable_offset_lag": 3,
        }.items()
    )


def test_rows_have_the_names_of_hapax_offsets(told):
    told.work()
    (row,) = told.status["partitions"]
    look = Look(
        topic="orders",
        partition=0,
        log=LogOffsets(0, 9, 9),
        committed=5,
        position=7,
    )
    (offsets,) = figures([look])["partitions"]
    assert offsets.keys() <= row.keys()
    asked = {"lag_seconds", "stuck"}
    assert {name: row[name] for name in offsets.keys() - asked} == look.figures()


def test_figures_that_brokers_renew_no_more_grow_old_and_the_page_says_why(told):
    told.work()
    told.wall_s += 30
    told.monotonic_s += 3
    told.events.loop_moved()
    told.events.lag_updated([], told.wall_s, complete=False)
    told.events.brokers_unreachable("kafka:9092: connection refused")
    assert told.status["state"] == "running"  # for a moment
    told.wall_s += 4
    told.monotonic_s += 4
    told.events.loop_moved()
    status = told.status
    assert (status["state"], status["ready"]) == ("stalled", False)
    assert status["reasons"] == [
        "no broker has answered since 22:13:50 (kafka:9092: connection refused)"
    ]
    assert status["lag_updated_s_ago"] == 34
    assert [row["seen_s_ago"] for row in status["partitions"]] == [34]
    shown = told.page
    assert "no broker has answered since 22:13:50 (kafka:9092: connection refused)" in shown.text
    assert "last complete query 34.0 s ago" in shown.text
    link = "https://runbooks.example/hapax/alerts.md#hapaxbrokersaway"
    assert ("a", "href", link) in shown.attributes
    told.events.brokers_reached()
    assert (told.status["state"], told.status["reasons"]) == ("running", [])


def test_partitions_that_nobody_has_surveyed_yet_are_there_without_marks(told):
    told.events.partitions_assigned([ORDERS])
    (row,) = told.status["partitions"]
    assert row == {"topic": "orders", "partition": 0, "lag": None, "stuck": None}
    assert "no complete query yet" in told.page.text


def test_partitions_that_left_are_not_shown(told):
    told.work()
    told.events.partitions_revoked([ORDERS])
    assert told.status["partitions"] == []


@pytest.mark.parametrize(
    ("margin_s", "shown"),
    [
        (math.inf, "never"),
        (None, "\N{EN DASH}"),
        (-5.0, "⚠ being deleted"),
        (600.0, "⚠ 10.0 min"),
        (18_000.0, "⚠ 5.0 h"),
        (600_000.0, "6.9 d"),
    ],
)
def test_what_retention_is_about_to_delete_is_marked(told, margin_s, shown):
    told.work(msgspec.structs.replace(OURS, margin_s=margin_s))
    assert f"4 60.0 s {shown} 0 s" in told.page.text


def test_a_transaction_that_stays_open_is_marked(told):
    told.work(OURS, msgspec.structs.replace(OUT_LAG, open_s=75.0))
    assert "⚠ 75.0 s" in told.page.text


def test_the_claim_store_is_up_away_or_not_there():
    assert Told().status["claim_store"] == {"state": "none"}
    told = Told(claim_store=True)
    told.work()
    assert told.status["claim_store"] == {"state": "up"}
    told.events.claims_unavailable("timeout", "pause")
    told.monotonic_s += 4
    assert told.status["claim_store"] == {"state": "away", "away_s": 4.0, "reason": "timeout"}
    assert told.status["state"] == "paused"
    assert "the claim store does not answer" in told.page.text
    assert "away for 4.0 s" in told.page.text


def test_states_are_those_of_the_probes(told):
    told.events.service_ready()
    assert told.status["state"] == "starting"  # no assignment yet
    told.work()
    told.monotonic_s += 6
    assert told.status["state"] == "stalled"
    told.events.service_draining("SIGTERM")
    assert told.status["state"] == "draining"


def test_what_a_bounded_run_waits_for_is_a_reason_until_it_goes_on(told):
    told.events.service_ready()
    told.work()
    told.events.open_transactions_awaited({("orders", 0): HeldBack(10, 35)})
    said = "25 offsets wait for open transactions (orders/0 from 10 to 35)"
    assert told.status["reasons"] == [said]
    assert said in told.page.text
    assert told.status["state"] == "running"
    told.events.open_transactions_awaited({})
    assert told.status["reasons"] == []


def test_a_micro_batch_is_the_last_transaction_of_a_pipeline_and_its_lag_is_shown(told):
    told.events.service_ready()
    told.events.query_started("q", "r", "/checkpoint")
    phases_s = {"plan": 0.1, "work": 0.5, "publish": 0.2, "total": 0.8}
    numbers = Numbers(number=3, inputs={"in": 12}, outputs={"out": 2}, phases_s=phases_s)
    told.events.micro_batch_completed(numbers)
    told.events.lag_observed({("in", 0): 7})
    assert (
        told.status["last_transaction"].items()
        >= {
            "records": 12,
            "outputs": 2,
            "duration_ms": 800.0,
            "phases_ms": {"plan": 100.0, "work": 500.0, "publish": 200.0},
        }.items()
    )
    (row,) = told.status["partitions"]
    assert row == {"topic": "in", "partition": 0, "lag": 7, "stuck": None}
    assert "12 in, 2 out" in told.page.text
    assert told.status["micro_batch"]["phases_ms"]["total"] == 800.0
    assert "plan 100.0 ms work 500.0 ms publish 200.0 ms total 800.0 ms" in told.page.text


# -- Spark --------------------------------------------------------------------------------


def test_other_engines_say_nothing_of_spark(told):
    assert told.status["spark"] is None
    assert "Executors" not in told.page.text


def test_executors_are_shown_with_what_they_do_and_how_old_that_is():
    told = Told(engine="spark")
    assert told.status["spark"]["executors_seen_s_ago"] is None
    assert "Executors not known yet" in told.page.text
    driver = msgspec.structs.replace(IDLE, name="driver", cores=0)
    told.events.executors_changed([IDLE, driver], "http://driver:4040")
    told.events.executor_seen("node-1", "native (librdkafka 2.16.0)")
    told.wall_s += 3
    spark = told.status["spark"]
    assert spark["executors"] == [
        {
            "name": "1",
            "address": "10.0.0.9:40001",
            "cores": 4,
            "running": 1,
            "done": 20,
            "failed": 2,
            "memory_bytes": 2**20,
            "memory_max_bytes": 2**30,
        }
    ]
    assert (spark["executors_seen_s_ago"], spark["waits_for_executors"]) == (3, False)
    shown = told.page
    assert "Executors 1, as of 3.0 s ago" in shown.text
    assert "1 10.0.0.9:40001 4 1 20 2 1.0 MiB of 1.0 GiB" in shown.text
    assert "record path on node-1: native (librdkafka 2.16.0)" in shown.text
    assert ("a", "href", "http://driver:4040") in shown.attributes


def test_a_driver_that_waits_for_executors_says_so():
    told = Told(engine="spark")
    told.events.executors_changed([msgspec.structs.replace(IDLE, name="driver", cores=0)], "")
    told.events.executors_awaited("no executor of spark://a has answered yet")
    spark = told.status["spark"]
    assert spark["waits_for_executors"]
    assert spark["waits_because"] == "no executor of spark://a has answered yet"
    assert "⚠ none: tasks wait until an executor is free for this driver" in told.page.text
    assert "⚠ no executor of spark://a has answered yet" in told.page.text
    told.events.executors_changed([IDLE], "")
    told.events.executors_ready(["node-1"], {"Python": "3.11.2", "hapax": "0.1.0"})
    spark = told.status["spark"]
    assert (spark["waits_for_executors"], spark["waits_because"]) == (False, None)
    assert "all run what the driver runs: Python 3.11.2, hapax 0.1.0" in told.page.text
    assert "⚠" not in told.page.text.partition("Executors")[2]


def test_an_address_that_leads_to_no_page_is_no_link():
    told = Told(engine="spark")
    told.events.executors_changed([IDLE], "javascript:alert(1)")
    assert "javascript" not in told.page.html


def test_a_lane_shows_its_range_in_flight_and_what_the_last_one_came_to():
    told = Told(engine="spark")
    p1 = ("orders", 1)
    told.events.lanes_assigned({0: {ORDERS: 40, p1: None}, 1: {("orders", 2): 7}})
    told.events.range_started(0, {ORDERS: 40, p1: None}, {ORDERS: 45}, 2)
    told.wall_s += 2
    first, second = told.status["spark"]["lanes"]
    assert second == {
        "lane": 1,
        "partitions": [{"topic": "orders", "partition": 2, "position": 7}],
        "range": None,
        "last_range": None,
    }
    assert first["range"] == {
        "since": told.wall_s - 2,
        "seconds": 2,
        "attempt": 2,
        "offsets": [{"topic": "orders", "partition": 0, "from": 40, "to": 45}],
    }
    assert "Lanes 2, 1 with a range in flight" in told.page.text
    row = f"0 orders/0: 40; orders/1: {DASH} orders/0: 40 to 45, attempt 2 5 2.0 s none yet"
    assert row in told.page.text
    told.events.range_completed(
        0,
        "done",
        {ORDERS: (40, 45)},
        transactions=2,
        records=5,
        open_s=0.1,
        work_s=0.3,
        round_s=0.5,
    )
    (first, _) = told.status["spark"]["lanes"]
    assert first["range"] is None
    assert first["partitions"][0]["position"] == 45
    assert (
        first["last_range"].items()
        >= {
            "outcome": "done",
            "records": 5,
            "transactions": 2,
            "open_ms": 100.0,
            "work_ms": 300.0,
            "round_ms": 500.0,
            "s_ago": 0,
        }.items()
    )
    assert (
        f"0 orders/0: 45; orders/1: {DASH} none {DASH} {DASH} done 5 2 500.0 ms 0 s ago"
        in told.page.text
    )


def test_a_task_that_is_lost_is_no_range_in_flight():
    told = Told(engine="spark")
    told.events.lanes_assigned({0: {ORDERS: 40}})
    told.events.range_started(0, {ORDERS: 40}, {ORDERS: 45}, 1)
    told.events.task_lost(0, "its executor is gone", 1, {ORDERS: 40})
    (lane,) = told.status["spark"]["lanes"]
    assert (lane["range"], lane["last_range"]["outcome"]) == (None, "lost")
    assert "⚠ lost" in told.page.text
    told.events.task_lost(7, "of a lane that was taken away", 1, {})
    assert len(told.status["spark"]["lanes"]) == 1


def test_lanes_beyond_twenty_are_folded_and_long_ones_are_cut():
    told = Told(engine="spark")
    told.events.lanes_assigned(
        {lane: {("orders", lane * 9 + at): 1 for at in range(9)} for lane in range(25)}
    )
    shown = told.page
    assert "5 more" in shown.text
    assert "0 orders/0: 1; orders/1: 1; orders/2: 1; 6 more" in shown.text


# -- troubles -----------------------------------------------------------------------------


def test_warnings_and_errors_are_kept_the_latest_first_and_no_more_than_20(told):
    for number in range(30):
        told.events.claims_recovered(number)  # an information
        told.events.producer_died(f"number {number}", fenced=False)
    troubles = told.status["troubles"]
    assert [trouble["event"] for trouble in troubles] == ["producer_died"] * 20
    assert troubles[0]["text"] == "reason=number 29 fenced=False"
    assert troubles[0]["level"] == "error"


def test_texts_of_records_and_of_business_code_stay_in_the_log(told):
    told.events.dead_letter_written(WHERE, "KeyError", 3, "card 4111 1111")
    told.events.library_logged("shop.rules", 30, "card 4111 1111")
    told.events.spark_logged(40, "python", "card 4111 1111")
    assert "4111" not in json.dumps(told.status)
    assert "record=orders/0/41 reason=KeyError attempts=3" in told.page.text


def test_a_password_in_an_address_is_not_shown(told):
    told.events.claims_unavailable("rediss://user:hunter2@redis:6379/0 timed out", "pause")
    assert "rediss://***@redis:6379/0" in told.page.text
    assert "hunter2" not in told.page.html


def test_a_long_text_is_cut_and_made_printable(told):
    told.events.preflight_refused(["\x1b[31m" + "x" * 5_000])
    (trouble,) = told.status["troubles"]
    assert len(trouble["text"]) <= 300
    assert trouble["text"].isprintable()


# -- the page -----------------------------------------------------------------------------


def test_whatever_comes_from_outside_is_escaped():
    told = Told(app=EVIL, instance=EVIL, engine="spark", transactional_id=EVIL, version=EVIL)
    told.events.executors_changed([msgspec.structs.replace(IDLE, name=EVIL, address=EVIL)], EVIL)
    told.events.executor_seen(EVIL, EVIL)
    told.events.lanes_assigned({0: {(EVIL, 0): 1}})
    told.events.range_started(0, {(EVIL, 0): 1}, {(EVIL, 0): 2}, 1)
    told.work(
        msgspec.structs.replace(OUT_LAG, topic=EVIL),
        msgspec.structs.replace(OURS, topic=EVIL),
    )
    told.events.partitions_assigned([(EVIL, 0)])
    told.events.producer_died(EVIL, fenced=True)
    shown = told.page
    assert (shown.tags.count("script"), shown.tags.count("b")) == (1, 1)  # the page's own
    assert '<script>alert("1")' in shown.text
    assert "<script>alert" not in shown.html


def test_nothing_runs_and_nothing_looks_but_what_the_policy_names(told):
    told.work()
    shown = told.page
    assert {"iframe", "img", "link", "object", "form"}.isdisjoint(shown.tags)
    assert not [
        name for _, name, _ in shown.attributes if name.startswith("on") or name in {"src", "style"}
    ]
    hrefs = {value for tag, name, value in shown.attributes if (tag, name) == ("a", "href")}
    assert hrefs == {"/status.json", "/metrics", "/livez", "/readyz", "/startupz"}
    assert "url(" not in shown.html
    assert "@import" not in shown.html
    policy = dict(HEADERS)["Content-Security-Policy"]
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", shown.html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}';" in policy
    assert "frame-ancestors 'none'" in policy


def test_without_its_script_the_page_comes_again_by_itself(told):
    shown = told.page
    assert '<noscript><meta http-equiv="refresh" content="5"></noscript>' in shown.html
    assert ("meta", "content", "width=device-width, initial-scale=1") in shown.attributes
    assert "@media (prefers-color-scheme: dark)" in shown.html


# -- what is new ---------------------------------------------------------------------------


def lags(count: int) -> list[PartitionLag]:
    """Return rows whose lag grows with the partition."""
    return [
        msgspec.structs.replace(OURS, partition=at, log=LogOffsets(0, 5 + at, 5 + at), lag_s=at)
        for at in range(count)
    ]


def test_the_worst_partition_comes_first_and_those_beyond_twenty_are_folded():
    told = Told()
    told.events.partitions_assigned([("orders", at) for at in range(25)])
    told.work(*lags(25))
    html = told.page.html
    assert html.index(">orders/24<") < html.index(">orders/23<") < html.index(">orders/5<")
    folded = html[html.index('id="inputs-folded"') :]
    assert ">orders/4<" in folded
    assert ">orders/5<" not in folded
    assert "5 more, with less lag" in folded
    assert told.status["total_lag"] == {
        "records": sum(range(25)), "seconds": 24, "partitions": 25, "known": 25,
    }  # fmt: skip
    assert "total lag 300" in told.page.text


def test_a_lag_that_is_known_in_part_says_of_how_many_partitions(told):
    told.events.partitions_assigned([ORDERS, ("orders", 1)])
    told.work()
    assert "total lag 4 of 1 of 2 partitions" in told.page.text


def test_a_stuck_partition_comes_before_one_with_more_lag(told):
    told.work(*lags(3))
    told.events.partitions_assigned([("orders", at) for at in range(3)])
    told.work(*lags(3))
    told.events.partition_stuck({("orders", 0): Stuck(5, "bad codec")})
    html = told.page.html
    assert html.index(">orders/0 ") < html.index(">orders/2<")


def test_rates_follow_from_samples_of_the_last_minutes(told):
    told.work()
    assert told.status["rates"] == []
    told.over(10, 500)
    told.over(10, 0)
    assert [one["in_per_s"] for one in told.status["rates"]] == [50.0, 0.0]
    for _ in range(100):
        told.over(5, 5)
    rates = told.status["rates"]
    assert (len(rates), {one["in_per_s"] for one in rates[-50:]}) == (60, {1.0})
    assert "records in per second: from" in told.page.html


def test_a_clock_that_is_set_back_leaves_no_negative_rate(told):
    told.over(10, 10)
    told.over(-3_600, 10)
    told.over(10, 10)
    assert all(one["in_per_s"] >= 0 for one in told.status["rates"])


def test_members_show_what_they_hold(told):
    assert "Group not known yet" in told.page.text
    told.work()
    assert told.status["members"]["hold"] == {"shop-shop-0 (10.0.0.1)": {"orders": [0, 1, 2, 7]}}
    assert "shop-shop-0 (10.0.0.1) 4 orders: 0-2, 7" in told.page.text


def test_dead_letters_are_counted_by_reason_with_the_command_that_lists_them(told):
    told.metrics.records_dead_lettered.of("KeyError").inc(2)
    told.metrics.records_dead_lettered.of("odd name").inc(5)
    assert told.status["dead_letters"] == [
        {
            "reason": "odd name",
            "count": 5,
            "command": "hapax dead-letters list --reason 'odd name'",
        },
        {"reason": "KeyError", "count": 2, "command": "hapax dead-letters list --reason KeyError"},
    ]
    assert "KeyError 2 hapax dead-letters list --reason KeyError" in told.page.text
    without = Told(dead_letters=False)
    without.metrics.records_dead_lettered.of("KeyError").inc()
    assert without.status["dead_letters"][0]["command"] is None


def test_settings_in_force_are_shown_as_they_are_redacted(told):
    assert told.status["settings"]["HAPAX_KAFKA__SECURITY__PASSWORD"] == "***"  # noqa: S105
    assert "HAPAX_APP shop HAPAX_KAFKA__SECURITY__PASSWORD ***" in told.page.text


def test_times_are_those_of_the_log(told):
    told.work()
    told.events.producer_died("gone", fenced=False)
    shown = told.page
    assert ("time", "datetime", "2023-11-14T22:13:20Z") in shown.attributes
    assert "error, 22:13:20 UTC , 0 s ago" in shown.text
    assert "as of 22:13:20 UTC" in shown.text


def test_a_dataframe_pipeline_shows_batch_watermark_state_and_input_rate(told):
    assert told.status["micro_batch"] is None
    told.events.service_ready()
    told.events.query_started("q", "r", "/checkpoint")
    told.events.micro_batch_completed(
        Numbers(
            number=41,
            inputs={"in": 500},
            phases_s={"total": 2.0},
            late=3,
            state_rows=1_200,
            state_bytes=3 * 2**20,
            watermark="2026-01-02T03:04:05.000Z",
        )
    )
    text = told.page.text
    for shown in (
        "micro-batch 41",
        "watermark 2026-01-02T03:04:05.000Z",
        "state 1,200 rows, 3.0 MiB",
        "dropped as late 3",
        "input rate 250.0 records/s",
    ):
        assert shown in text


def test_a_status_that_says_little_still_makes_a_page():
    assert "unknown" in Page(page({})).text


def test_calls_that_overlap_are_counted_and_each_partition_names_what_it_waits_for():
    told = Told()
    told.work()
    assert told.status.get("calls") is None
    records = [Record("orders", at, offset, None, b"v") for at, offset in ((0, 8), (0, 7), (1, 3))]
    told.events.calls_observed(list(zip(records, (0.25, 4.0, 0.5), strict=True)))
    assert told.status["calls"] == {
        "in_flight": 3,
        "oldest_seconds": 4.0,
        "waited_for": [
            {"record": "orders/0/7", "seconds": 4.0},
            {"record": "orders/1/3", "seconds": 0.5},
        ],
        "records": {"orders/0/7": 4.0, "orders/1/3": 0.5, "orders/0/8": 0.2},
    }
    assert "3, the oldest for 4" in told.page.text
    samples = {s.name: s.value for m in told.metrics.registry.collect() for s in m.samples}
    assert samples["hapax_calls_in_flight"] == 3
    assert samples["hapax_call_oldest_seconds"] == 4
    told.events.calls_observed([])
    assert told.status["calls"]["in_flight"] == 0
