"""What each box of the status page says, as a browser shows it."""

import math
from collections.abc import Callable

import msgspec
import pytest
from playwright.sync_api import Browser

from hapax.core.ports import Stuck
from hapax.core.records import Record
from tests.integration import test_status_browser as browsing
from tests.kit.status_page import ELSEWHERE, WITH_CLAIMS, WITHOUT_DEAD_LETTERS, Told
from tests.unit.test_telemetry_events import IDLE, ORDERS, OUT_LAG, WHERE
from tests.unit.test_telemetry_survey import OURS

DASH = "\N{EN DASH}"
EVIL = '<script>alert("1")</script>&\'"><b>'


@pytest.fixture(scope="module")
def browser():
    with browsing.opened_browser() as browser:
        yield browser


def text_of(browser: Browser, told: Told) -> str:
    with browsing.served(told) as server, browsing.shown(browser, server) as page:
        return browsing.words(page)


def working() -> Told:
    told = Told()
    told.work()
    told.wall_s += 7_200
    told.monotonic_s += 1
    return told


def writes_elsewhere() -> Told:
    return Told(ELSEWHERE)


def writes_to_a_known_cluster() -> Told:
    told = Told(ELSEWHERE)
    told.events.outputs_cluster_met("there:9092", "id-of-there")
    return told


def without_brokers() -> Told:
    told = Told()
    told.work()
    told.wall_s += 30
    told.events.lag_updated([], told.wall_s, complete=False)
    told.events.brokers_unreachable("kafka:9092: connection refused")
    told.wall_s += 4
    told.monotonic_s += 4
    told.events.loop_moved()
    return told


def not_surveyed() -> Told:
    told = Told()
    told.events.partitions_assigned([ORDERS])
    return told


def without_claim_store() -> Told:
    told = Told(WITH_CLAIMS)
    told.work()
    told.events.claims_unavailable("timeout", "pause")
    told.monotonic_s += 4
    return told


def open_transaction() -> Told:
    told = Told()
    told.work(OURS, msgspec.structs.replace(OUT_LAG, open_s=75.0))
    return told


def executors() -> Told:
    told = Told(engine="spark")
    told.events.executors_changed([IDLE], "http://driver:4040")
    told.events.executor_seen("node-1", "native (librdkafka 2.16.0)")
    told.events.executors_ready(["node-1"], {"Python": "3.11.2", "hapax": "0.1.0"})
    told.wall_s += 3
    return told


def range_in_flight() -> Told:
    told = Told(engine="spark")
    told.events.lanes_assigned({0: {ORDERS: 40, ("orders", 1): None}, 1: {("orders", 2): 7}})
    told.events.range_started(0, {ORDERS: 40, ("orders", 1): None}, {ORDERS: 45}, 2)
    told.wall_s += 2
    return told


def range_done() -> Told:
    told = range_in_flight()
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
    return told


def range_lost() -> Told:
    told = range_in_flight()
    told.events.task_lost(0, "its executor is gone", 1, {ORDERS: 40})
    return told


def many_lanes() -> Told:
    told = Told(engine="spark")
    told.events.lanes_assigned(
        {lane: {("orders", lane * 9 + at): 1 for at in range(9)} for lane in range(25)}
    )
    return told


def partly_known() -> Told:
    told = Told()
    told.events.partitions_assigned([ORDERS, ("orders", 1)])
    told.work()
    return told


def dead_letters() -> Told:
    told = Told()
    told.metrics.records_dead_lettered.of("KeyError").inc(2)
    told.events.dead_letter_written(WHERE, "KeyError", 3, "card 4111 1111")
    return told


def dead_letters_without_a_topic() -> Told:
    told = Told(WITHOUT_DEAD_LETTERS)
    told.metrics.records_dead_lettered.of("KeyError").inc()
    return told


def calls() -> Told:
    told = Told()
    told.work()
    records = [Record("orders", at, offset, None, b"v") for at, offset in ((0, 8), (0, 7), (1, 3))]
    told.events.calls_observed(list(zip(records, (0.25, 4.0, 0.5), strict=True)))
    return told


def at_risk() -> Told:
    told = Told()
    told.work(msgspec.structs.replace(OURS, margin_s=-5.0))
    return told


SAID: list[tuple[Callable[[], Told], list[str]]] = [
    (
        browsing.starting,
        ["starting: transactions are not initialised yet", "none yet", "not known yet"],
    ),
    (
        working,
        [
            "shop running worker · exactly_once · native · shop-shop-0",
            "up for 2.0 h",
            "9 in, 6 out, 7.0 ms identify 1.0 ms claim 2.0 ms commit 4.0 ms",
            "librdkafka 2.16.1",
            "lag 4 oldest unread 60.0 s",
            "shop-shop-0 (10.0.0.1) 4 orders: 0-2, 7",
            "HAPAX_APP shop",
            "HAPAX_KAFKA__SECURITY__PASSWORD ***",
            "as of 00:13:20 UTC",
        ],
    ),
    (writes_elsewhere, ["outputs go to there:9092 has not answered yet"]),
    (writes_to_a_known_cluster, ["outputs go to there:9092 id-of-there"]),
    (
        without_brokers,
        [
            "no broker has answered since 22:13:50 (kafka:9092: connection refused) ( runbook )",
            "last complete query 34.0 s ago",
        ],
    ),
    (not_surveyed, ["no complete query yet"]),
    (at_risk, ["Ready, at risk retention deletes unread records of orders/0 now ( runbook )"]),
    (without_claim_store, ["the claim store does not answer", "⚠ away for 4.0 s"]),
    (open_transaction, ["⚠ 75.0 s"]),
    (
        browsing.dataframe,
        [
            "12 in, 2 out",
            "micro-batch 41",
            "watermark 2026-01-02T03:04:05.000Z",
            "state 1,200 rows, 3.0 MiB",
            "dropped as late 3",
            "read of in 12",
            "input rate 15.0 records/s",
            "plan 100.0 ms work 500.0 ms publish 200.0 ms total 800.0 ms",
        ],
    ),
    (
        executors,
        [
            "Executors 1, as of 3.0 s ago",
            "1 10.0.0.9:40001 4 1 20 2 1.0 MiB of 1.0 GiB",
            "all run what the driver runs: Python 3.11.2, hapax 0.1.0",
            "record path on node-1: native (librdkafka 2.16.0)",
        ],
    ),
    (
        browsing.awaits_executors,
        [
            "⚠ none: tasks wait until an executor is free for this driver",
            "⚠ no executor of spark://a has answered yet",
        ],
    ),
    (
        range_in_flight,
        [
            "Lanes 2, 1 with a range in flight",
            f"0 orders/0: 40; orders/1: {DASH} orders/0: 40 to 45, attempt 2 5 2.0 s none yet",
        ],
    ),
    (
        range_done,
        [f"0 orders/0: 45; orders/1: {DASH} none {DASH} {DASH} done 5 2 500.0 ms 0 s ago"],
    ),
    (range_lost, ["⚠ lost"]),
    (many_lanes, ["5 more", "0 orders/0: 1; orders/1: 1; orders/2: 1; 6 more"]),
    (partly_known, ["lag 4 of 1 of 2 partitions"]),
    (
        dead_letters,
        [
            "KeyError 2 hapax dead-letters list --reason KeyError",
            "record=orders/0/41 reason=KeyError attempts=3",
            "warning, 22:13:20 UTC , 0 s ago",
        ],
    ),
    (dead_letters_without_a_topic, ["KeyError 1 no topic"]),
    (calls, ["calls in flight 3, the oldest for 4.0 s"]),
]


@pytest.mark.parametrize(("state", "said"), SAID, ids=[state.__name__ for state, _ in SAID])
def test_it_says(browser, state, said):
    text = text_of(browser, state())
    assert [one for one in said if one not in text] == [], text


@pytest.mark.parametrize(
    ("margin_s", "said"),
    [
        (math.inf, DASH),
        (None, DASH),
        (-5.0, "⚠ being deleted"),
        (600.0, "⚠ 10.0 min"),
        (18_000.0, "⚠ 5.0 h"),
        (600_000.0, "6.9 d"),
    ],
)
def test_what_retention_is_about_to_delete_is_marked(browser, margin_s, said):
    told = Told()
    told.work(msgspec.structs.replace(OURS, margin_s=margin_s))
    assert f"4 60.0 s {said} 0 s" in text_of(browser, told)


@pytest.mark.parametrize(
    ("state", "unsaid"),
    [
        (working, ["outputs go to", "Executors", "Lanes", "DataFrame", "Not ready"]),
        (executors, ["⚠", "Lanes"]),
        (dead_letters, ["4111"]),
    ],
)
def test_boxes_and_marks_of_what_is_not_there_are_not_shown(browser, state, unsaid):
    text = text_of(browser, state())
    assert [one for one in unsaid if one in text] == []


def test_causes_and_executors_lead_to_their_pages(browser):
    for state, address in (
        (without_brokers, "https://runbooks.example/hapax/alerts.md#hapaxbrokersaway"),
        (executors, "http://driver:4040"),
    ):
        with browsing.served(state()) as server, browsing.shown(browser, server) as page:
            assert page.locator(f'main a[href="{address}"]').count() == 1


def test_an_address_that_leads_to_no_page_is_no_link(browser):
    told = Told(engine="spark")
    told.events.executors_changed([IDLE], "javascript:alert(1)")
    with browsing.served(told) as server, browsing.shown(browser, server) as page:
        assert page.locator("main a").count() == page.locator("#causes a").count()


def test_whatever_comes_from_outside_stays_text(browser):
    told = Told(app=EVIL, instance=EVIL, engine="spark", transactional_id=EVIL, version=EVIL)
    told.events.executors_changed([msgspec.structs.replace(IDLE, name=EVIL, address=EVIL)], EVIL)
    told.events.executor_seen(EVIL, EVIL)
    told.events.lanes_assigned({0: {(EVIL, 0): 1}})
    told.events.range_started(0, {(EVIL, 0): 1}, {(EVIL, 0): 2}, 1)
    told.work(
        msgspec.structs.replace(OUT_LAG, topic=EVIL), msgspec.structs.replace(OURS, topic=EVIL)
    )
    told.events.partitions_assigned([(EVIL, 0)])
    told.events.producer_died(EVIL, fenced=True)
    with browsing.served(told) as server, browsing.shown(browser, server) as page:
        assert browsing.words(page).count('<script>alert("1")') >= 8
        assert page.locator("script").count() == 3  # the page's own
        assert page.locator("main b").count() == 1


def test_control_what_would_be_markup_is_refused_by_the_policy(browser):
    with browsing.served(working()) as server:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.port}/")
        with page.expect_event("console", lambda line: "TrustedHTML" in line.text):
            page.evaluate(
                "try { document.body.innerHTML = '<b>'; } catch { document.title = 'x'; }"
            )
        assert page.locator("header").count() == 1
        page.close()


def test_the_worst_partition_comes_first_and_those_beyond_twenty_are_folded(browser):
    with browsing.served(browsing.many(25)) as server, browsing.shown(browser, server) as page:
        rows = [row.split()[0] for row in page.locator("#inputs tbody th").all_text_contents()]
        assert rows == [f"orders/{at}" for at in reversed(range(25))]
        assert page.locator("#inputs-folded tbody tr").count() == 5
        assert "5 more, with less lag" in browsing.words(page)
        assert "lag 300" in browsing.words(page)


def test_a_stuck_partition_comes_before_one_with_more_lag(browser):
    told = browsing.many(3)
    told.events.partition_stuck({("orders", 0): Stuck(5, "bad codec")})
    with browsing.served(told) as server, browsing.shown(browser, server) as page:
        assert page.locator("#inputs tbody th").first.inner_text() == "orders/0 ⚠ stuck"


def test_rates_are_drawn_and_said_in_words(browser):
    told = Told()
    told.work()
    with browsing.served(told) as server, browsing.shown(browser, server) as page:
        assert page.locator("canvas").count() == 0
    for records in (500, 0, 100):
        told.over(10, records)
    with browsing.served(told) as server, browsing.shown(browser, server) as page:
        chart = page.locator("#chart-rates .chart")
        said = (
            "in: from 50 to 10, at most 50\xa0records/s; out: from 0 to 0, at most 0\xa0records/s"
        )
        assert chart.get_attribute("aria-label") == said
        assert chart.locator("canvas").evaluate(
            """canvas => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height)
            .data.some(byte => byte > 0)"""
        )
