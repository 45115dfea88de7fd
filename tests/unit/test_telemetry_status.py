"""What /status.json says, which the status page shows, and what it must never say."""

import json
import math

import msgspec
import pytest

from hapax.cluster.micro_batches import Numbers
from hapax.cluster.partition_offsets import HeldBack, LogOffsets
from hapax.commands.admin.offsets import figures
from hapax.core.records import Record
from hapax.operations.offsets import Look
from hapax.processing.state import StateFigures
from tests.kit.status_page import ELSEWHERE, WITH_CLAIMS, WITHOUT_DEAD_LETTERS, Told
from tests.unit.test_telemetry_events import IDLE, ORDERS, WHERE
from tests.unit.test_telemetry_settled import SETTLED
from tests.unit.test_telemetry_survey import OURS


@pytest.fixture
def told():
    return Told()


def test_states_are_those_of_the_probes_and_a_start_shows_what_it_waits_for(told):
    assert (told.status["state"], told.status["last_transaction"]) == ("starting", None)
    assert told.status["causes"][0]["reason"] == "starting: transactions are not initialised yet"
    told.events.service_ready()
    assert told.status["state"] == "starting"  # no assignment yet
    told.work()
    told.monotonic_s += 6
    assert told.status["state"] == "stalled"
    told.events.service_draining("SIGTERM")
    assert told.status["state"] == "draining"


def test_outputs_that_go_to_another_cluster_show_its_brokers_and_its_id_once_it_answered():
    assert Told().status["outputs_cluster"] is None
    told = Told(ELSEWHERE)
    assert told.status["outputs_cluster"] == {"servers": "there:9092", "id": None}
    told.events.outputs_cluster_met("there:9092", "id-of-there")
    assert told.status["outputs_cluster"] == {"servers": "there:9092", "id": "id-of-there"}


def test_a_worker_that_works_shows_who_it_is_what_it_did_and_who_holds_what(told):
    told.work()
    told.wall_s += 7_200
    status = told.status
    assert status["state"] == "running"
    assert (status["transactional_id"], status["guarantee"]) == ("shop-shop-0", "exactly_once")
    assert status["uptime_s"] == 7_200
    assert status["build"]["librdkafka"] == "2.16.1"
    last, totals = status["last_transaction"], status["totals"]
    assert [last[name] for name in ("records", "outputs", "duplicates", "dead_letters")] == [
        9, 6, 2, 1,
    ]  # fmt: skip
    assert last["outcome"] == "committed"
    assert last["phases_ms"] == {"identify": 1.0, "claim": 2.0, "commit": 4.0}
    assert [totals[f"records_{way}"] for way in ("in", "out")] == [9, 6]
    assert [totals[name] for name in ("duplicates", "filtered", "dead_letters")] == [2, 1, 1]
    assert [totals[f"transactions_{end}"] for end in ("committed", "aborted")] == [1, 0]
    assert status["members"]["hold"] == {"shop-shop-0 (10.0.0.1)": {"orders": [0, 1, 2, 7]}}
    assert status["settings"]["HAPAX_KAFKA__SECURITY__PASSWORD"] == "***"  # noqa: S105
    assert status["spark"] is None, "of other engines"


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
    assert [written[name] for name in ("topic", "log_start", "last_stable")] == ["out", 1, 5]
    assert (written["high_watermark"], written["last_stable_offset_lag"]) == (8, 3)


def test_rows_have_the_names_of_hapax_offsets(told):
    told.work()
    (row,) = told.status["partitions"]
    look = Look(topic="orders", partition=0, log=LogOffsets(0, 9, 9), committed=5, position=7)
    (offsets,) = figures([look])["partitions"]
    assert offsets.keys() <= row.keys()
    assert {name: row[name] for name in offsets.keys() - {"lag_seconds", "stuck"}} == look.figures()


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
    link = "https://runbooks.example/hapax/alerts.md#hapaxbrokersaway"
    assert [cause["runbook"] for cause in status["causes"]] == [link]
    told.events.brokers_reached()
    assert (told.status["state"], told.status["reasons"]) == ("running", [])


def test_partitions_without_a_survey_are_there_without_marks_until_they_leave(told):
    told.events.partitions_assigned([ORDERS])
    (row,) = told.status["partitions"]
    assert row == {"topic": "orders", "partition": 0, "lag": None, "stuck": None}
    told.work()
    told.events.partitions_revoked([ORDERS])
    assert told.status["partitions"] == []


@pytest.mark.parametrize(("margin_s", "shown"), [(math.inf, None), (None, None), (-5.0, -5.0)])
def test_the_margin_of_retention_is_a_number_or_null(told, margin_s, shown):
    told.work(msgspec.structs.replace(OURS, margin_s=margin_s))
    (row,) = told.status["partitions"]
    assert row["retention_margin_seconds"] == shown


@pytest.mark.parametrize(
    ("margin_s", "lag_s", "at_risk"),
    [
        (59.0, 60.0, True),
        (60.0, 60.0, False),
        (0.0, None, True),
        (-1.0, 0.0, True),
        (5.0, None, False),
        (None, 60.0, False),
        (math.inf, 60.0, False),
    ],
)
def test_a_partition_whose_unread_records_have_used_half_of_their_retention_is_at_risk(
    told, margin_s, lag_s, at_risk
):
    told.work(msgspec.structs.replace(OURS, margin_s=margin_s, lag_s=lag_s))
    status = told.status
    assert (status["state"], status["ready"]) == ("at risk" if at_risk else "running", True)
    assert len(status["causes"]) == at_risk
    for cause in status["causes"]:
        assert cause["reason"].startswith("retention deletes unread records of orders/0 ")
        assert cause["runbook"].endswith("/alerts.md#hapaxretentionhalfused")
    told.events.partitions_revoked([ORDERS])
    told.events.partitions_assigned([])
    assert told.status["state"] == "running"


def test_the_claim_store_is_up_away_or_not_there():
    assert Told().status["claim_store"] == {"state": "none"}
    told = Told(WITH_CLAIMS)
    told.work()
    assert told.status["claim_store"] == {"state": "up"}
    told.events.claims_unavailable("timeout", "pause")
    told.monotonic_s += 4
    assert told.status["claim_store"] == {"state": "away", "away_s": 4.0, "reason": "timeout"}
    assert told.status["state"] == "paused"


def test_state_by_key_has_figures_and_partitions_that_wait_for_it_and_is_not_there_without_one(
    told,
):
    told.work(OURS)
    assert "keyed_state" not in told.status
    assert "held_by" not in told.status["partitions"][0]
    restoring = {ORDERS: (40, 100), ("orders", 1): (0, None)}
    told.events.state_measured(StateFigures(4096, 1 << 30, 7, restoring))
    status = told.status
    waits = [
        {"topic": "orders", "partition": 0, "read": 40, "of": 100},
        {"topic": "orders", "partition": 1, "read": 0, "of": None},
    ]
    figures = {"size_bytes": 4096, "size_max_bytes": 1 << 30, "entries": 7, "restoring": waits}
    assert status["keyed_state"] == figures
    assert status["partitions"][0]["held_by"] == "state"
    gauges = ("rows", "bytes", "max_bytes", "partitions_restoring", "unread_offsets")
    value = told.metrics.registry.get_sample_value
    assert [value(f"hapax_state_{name}") for name in gauges] == [7, 4096, 1 << 30, 2, 60]
    told.events.state_measured(StateFigures(4096, 1 << 30, 7, {}))
    assert told.status["partitions"][0]["held_by"] is None


def test_a_member_whose_partitions_all_wait_for_their_state_is_not_ready(told):
    told.events.service_ready()
    told.work(OURS)
    restoring = {ORDERS: (40, 100), ("orders", 9): (0, None)}  # one that has left meanwhile
    told.events.state_measured(StateFigures(4096, 1 << 30, 7, restoring))
    assert told.status["reasons"] == [
        "all of 1 partitions wait for their state, which is being read"
    ]
    told.events.state_measured(StateFigures(4096, 1 << 30, 7, {}))
    assert told.status["reasons"] == []


def test_what_a_bounded_run_waits_for_is_a_reason_until_it_goes_on(told):
    told.events.service_ready()
    told.work()
    told.events.open_transactions_awaited({("orders", 0): HeldBack(10, 35)})
    said = "25 offsets wait for open transactions (orders/0 from 10 to 35)"
    assert told.status["reasons"] == [said]
    assert told.status["state"] == "running"
    told.events.open_transactions_awaited({})
    assert told.status["reasons"] == []


def test_a_dataframe_pipeline_shows_its_last_batch_watermark_state_rate_and_lag(told):
    assert not told.status["micro_batch"]
    told.events.service_ready()
    told.events.query_started("q", "r", "/checkpoint")
    numbers = Numbers(
        number=41,
        inputs={"in": 500},
        outputs={"out": 2},
        phases_s={"plan": 0.1, "work": 0.5, "publish": 0.2, "total": 2.0},
        late=3,
        state_rows=1_200,
        state_bytes=3 * 2**20,
        watermark="2026-01-02T03:04:05.000Z",
    )
    told.events.micro_batch_completed(numbers)
    told.events.lag_observed({("in", 0): 7})
    last, batch = told.status["last_transaction"], told.status["micro_batch"]
    assert (last["records"], last["outputs"], last["duration_ms"]) == (500, 2, 800.0)
    assert last["phases_ms"] == {"plan": 100.0, "work": 500.0, "publish": 200.0}
    (row,) = told.status["partitions"]
    assert row == {"topic": "in", "partition": 0, "lag": 7, "stuck": None}
    assert (batch["number"], batch["watermark"]) == (41, "2026-01-02T03:04:05.000Z")
    assert (batch["state_rows"], batch["state_bytes"], batch["late"]) == (1_200, 3 * 2**20, 3)
    assert batch["phases_ms"]["total"] == 2_000.0
    assert batch["in_per_s"] == 250.0


def test_executors_are_shown_with_what_they_do_and_the_driver_says_when_it_waits_for_them():
    told = Told(engine="spark")
    assert told.status["spark"]["executors_seen_s_ago"] is None
    driver = msgspec.structs.replace(IDLE, name="driver", cores=0)
    told.events.executors_changed([driver], "")
    told.events.executors_awaited("no executor of spark://a has answered yet")
    spark = told.status["spark"]
    assert spark["waits_for_executors"]
    assert spark["waits_because"] == "no executor of spark://a has answered yet"
    told.events.executors_changed([IDLE, driver], "http://driver:4040")
    told.events.executors_ready(["node-1"], {"Python": "3.11.2", "hapax": "0.1.0"})
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
    assert spark["executors_seen_s_ago"] == 3
    assert (spark["waits_for_executors"], spark["waits_because"]) == (False, None)


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
    times_s = {"open_s": 0.1, "work_s": 0.3, "round_s": 0.5}
    told.events.range_completed(0, "done", {ORDERS: (40, 45)}, transactions=2, records=5, **times_s)
    (first, _) = told.status["spark"]["lanes"]
    assert first["range"] is None
    assert first["partitions"][0]["position"] == 45
    last = first["last_range"]
    assert [last[name] for name in ("outcome", "records", "transactions")] == ["done", 5, 2]
    assert [last[name] for name in ("open_ms", "work_ms", "round_ms")] == [100.0, 300.0, 500.0]
    assert last["s_ago"] == 0
    told.events.range_started(0, {ORDERS: 45}, {ORDERS: 50}, 1)
    told.events.task_lost(0, "its executor is gone", 1, {ORDERS: 45})
    (first, _) = told.status["spark"]["lanes"]
    assert (first["range"], first["last_range"]["outcome"]) == (None, "lost")
    told.events.task_lost(7, "of a lane that was taken away", 1, {})
    assert len(told.status["spark"]["lanes"]) == 2


def test_warnings_and_errors_are_kept_the_latest_first_and_no_more_than_20(told):
    for number in range(30):
        told.events.claims_recovered(number)  # an information
        told.events.producer_died(f"number {number}", fenced=False)
    troubles = told.status["troubles"]
    assert [trouble["event"] for trouble in troubles] == ["producer_died"] * 20
    assert troubles[0]["text"] == "reason=number 29 fenced=False"
    assert troubles[0]["level"] == "error"


def test_texts_of_records_and_passwords_stay_in_the_log_and_a_long_text_is_cut(told):
    told.events.dead_letter_written(WHERE, "KeyError", 3, "card 4111 1111")
    told.events.library_logged("shop.rules", 30, "card 4111 1111")
    told.events.spark_logged(40, "python", "card 4111 1111")
    told.events.claims_unavailable("rediss://user:hunter2@redis:6379/0 timed out", "pause")
    told.events.preflight_refused(["\x1b[31m" + "x" * 5_000])
    status = told.status
    said = json.dumps(status)
    assert "record=orders/0/41 reason=KeyError attempts=3" in said
    assert "4111" not in said
    assert "rediss://***@redis:6379/0" in said
    assert "hunter2" not in said
    text = status["troubles"][0]["text"]
    assert len(text) <= 300
    assert text.isprintable()


def test_the_total_lag_is_that_of_all_partitions():
    told = Told()
    told.events.partitions_assigned([("orders", at) for at in range(25)])
    told.work(
        *(
            msgspec.structs.replace(OURS, partition=at, log=LogOffsets(0, 5 + at, 5 + at), lag_s=at)
            for at in range(25)
        )
    )
    assert told.status["total_lag"] == {
        "records": sum(range(25)), "seconds": 24, "partitions": 25, "known": 25,
    }  # fmt: skip


def test_rates_follow_from_samples_of_the_last_minutes_and_are_never_negative(told):
    told.work()
    assert told.status["rates"] == []
    told.over(10, 500)
    told.over(10, 0)
    assert [one["in_per_s"] for one in told.status["rates"]] == [50.0, 0.0]
    for _ in range(100):
        told.over(5, 5)
    rates = told.status["rates"]
    assert (len(rates), {one["in_per_s"] for one in rates[-50:]}) == (60, {1.0})
    told.over(-3_600, 10)  # the clock is set back
    told.over(10, 10)
    assert all(one["in_per_s"] >= 0 for one in told.status["rates"])


def test_an_hour_is_kept_in_coarse_steps_with_what_happened_in_each(told):
    told.work()
    assert set(map(str, told.status["history"].values())) == {"[]"}
    told.over(10, 50)
    told.events.producer_rebuilt("fenced", 0.1)
    told.events.partitions_revoked([ORDERS])
    told.over(10, 0)
    history = told.status["history"]
    assert (history["in_per_s"], history["lag"]) == ([5.0, 0.0], [4, 4])
    at = history["at"][1]
    assert history["marks"] == [
        {"at": at, "what": "rebalance", "count": 1}, {"at": at, "what": "rebuild", "count": 1},
    ]  # fmt: skip
    for _ in range(1_000):
        told.over(5, 5)
    history = told.status["history"]
    assert {len(history[key]) for key in ("at", "in_per_s", "out_per_s", "lag")} == {360}
    assert history["at"][-1] - history["at"][0] == 3_590
    assert history["marks"] == []


def test_the_last_hundred_transactions_are_kept_without_what_grows(told):
    told.work()
    for number in range(150):
        told.events.transaction_committed(msgspec.structs.replace(SETTLED, records=number))
    kept = told.status["transactions"]
    assert [one["records"] for one in kept] == list(range(50, 150))
    assert kept[-1].items() <= told.status["last_transaction"].items()
    assert all(not settled.offsets for _, settled in told.health.settled)


@pytest.mark.parametrize(
    ("host", "environ", "page"),
    [
        ("10.0.0.1", {}, "http://10.0.0.1:9464/"),
        ("fd00::1", {}, "http://[fd00::1]:9464/"),
        ("127.0.0.1", {}, None),
        ("10.0.0.1", {"HAPAX_TELEMETRY__PORT": "0"}, None),
        ("10.0.0.1", {"HAPAX_TELEMETRY__ADDRESS": "127.0.0.1"}, None),
    ],
)
def test_members_have_the_address_of_their_page_where_it_can_be_known(host, environ, page):
    told, name = Told(environ), f"shop-shop-1 ({host})"
    told.members.told = (told.wall_s, {name: {}})
    assert told.status["members"]["pages"] == ({name: page} if page else {})


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
    without = Told(WITHOUT_DEAD_LETTERS)
    without.metrics.records_dead_lettered.of("KeyError").inc()
    assert without.status["dead_letters"][0]["command"] is None


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
    samples = {s.name: s.value for m in told.metrics.registry.collect() for s in m.samples}
    assert samples["hapax_calls_in_flight"] == 3
    assert samples["hapax_call_oldest_seconds"] == 4
    told.events.calls_observed([])
    assert told.status["calls"]["in_flight"] == 0
