"""The status page in a real browser, at the width of a desk and of a phone."""

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from hapax import __version__
from hapax.cluster.micro_batches import Numbers
from hapax.cluster.partition_offsets import LogOffsets
from hapax.sandbox import SandboxError, machine
from hapax.telemetry.http.server import TelemetryServer
from tests.kit.probes import ask, free_port
from tests.kit.routes import a_flow
from tests.kit.status_page import WITH_CLAIMS, Told
from tests.kit.waiting import await_
from tests.unit.test_telemetry_events import IDLE, OUT_LAG, WHERE
from tests.unit.test_telemetry_settled import SETTLED
from tests.unit.test_telemetry_survey import OURS


def chromium() -> Path:
    """Return Chromium as Debian packs it. Without one the tests fail, and say what to type."""
    found = machine._find(lambda: machine._on_path("chromium"), ("chromium",))
    if found is None:
        raise SandboxError("chromium is not on the PATH. Run: sudo apt-get install chromium")
    return found


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """Run a browser without windows. Its own sandbox needs rights that containers do not give."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


DESK, PHONE = {"width": 1_280, "height": 900}, {"width": 360, "height": 740}
AGAIN_MS = 10_000
"""Within this time the page has fetched itself again, on a machine that has much to do."""


@pytest.fixture(scope="module")
def browser():
    with opened_browser() as browser:
        yield browser


@contextmanager
def served(told: Told, port: int = 0) -> Iterator[TelemetryServer]:
    server = TelemetryServer(
        "127.0.0.1",
        port,
        registry=told.metrics.registry,
        health=told.health,
        status=told.status_source,
    )
    server.start()
    try:
        yield server
    finally:
        server.close()


OUTSIDE = """() => {
  const out = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const boxes = "th, td, dt, dd, li, p, button, summary, figcaption, section, header, footer";
  while (texts.nextNode()) {
    const parent = texts.currentNode.parentElement, box = parent.closest(boxes);
    if (!box || !parent.checkVisibility() || box.closest("thead")?.clientWidth === 1) continue;
    const around = box.getBoundingClientRect(), range = new Range();
    range.selectNode(texts.currentNode);
    for (const { left, right } of range.getClientRects())
      if (left < around.left - 1 || right > Math.min(around.right, innerWidth) + 1)
        out.push(texts.currentNode.data);
  }
  return out;
}"""
"""All text that is not whole within its own box and the window."""
WORDS = """() => {
  const words = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode())
    if (!texts.currentNode.parentElement.closest("[hidden], noscript"))
      words.push(texts.currentNode.data);
  return words.join(" ");
}"""
"""All text that is not hidden, folds included."""


@contextmanager
def shown(browser: Browser, server: TelemetryServer, **options: Any) -> Iterator[Page]:
    """Open the page, and fail for every complaint of the browser: of the policy or of a script."""
    page = browser.new_page(**({"viewport": DESK} | options))
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda line: complaints.append(line.text))
    page.goto(f"http://127.0.0.1:{server.port}/")
    if options.get("java_script_enabled", True):
        expect(page.get_by_role("status")).to_have_text("Live", timeout=AGAIN_MS)
    try:
        yield page
    finally:
        page.close()
    assert [one for one in complaints if "ERR_CONNECTION_REFUSED" not in one] == []


def many(count: int) -> Told:
    """Return a worker with so many partitions, whose lag grows with their numbers."""
    told = Told(WITH_CLAIMS)
    told.events.partitions_assigned([("orders", at) for at in range(count)])
    told.work(
        *(
            msgspec.structs.replace(
                OURS,
                partition=at,
                log=LogOffsets(0, 5 + at, 5 + at),
                lag_s=float(at),
                margin_s=None,
            )
            for at in range(count)
        ),
        *(msgspec.structs.replace(OUT_LAG, partition=at) for at in range(count)),
    )
    told.over(10, 4_000)
    told.over(10, 9_000)
    return told


def starting() -> Told:
    return Told()


def running() -> Told:
    told = many(3)
    assert told.status["state"] == "running"
    return told


def troubled() -> Told:
    """Not ready, with everything that is ever marked."""
    told = many(45)
    told.work(
        *(msgspec.structs.replace(OURS, partition=at, margin_s=600.0) for at in range(45)),
        msgspec.structs.replace(OUT_LAG, open_s=75.0),
    )
    told.events.claims_unavailable("timeout", "pause")
    told.events.producer_died("a reason", fenced=True)
    told.events.dead_letter_written(WHERE, "KeyError", 3, "text")
    told.metrics.records_dead_lettered.of("KeyError").inc(3)
    return told


def draining() -> Told:
    told = many(3)
    told.events.service_draining("SIGTERM")
    return told


def spark() -> Told:
    """Return a driver with executors and lanes, of which one has a range in flight."""
    told = Told(engine="spark")
    told.work()
    told.events.executors_changed([IDLE], "http://127.0.0.1:4040")
    told.events.executor_seen("node-1", "native (librdkafka 2.16.0)")
    told.events.lanes_assigned({lane: {("orders", lane): 40} for lane in range(25)})
    told.events.range_started(0, {("orders", 0): 40}, {("orders", 0): 45}, 2)
    told.events.task_lost(1, "its executor is gone", 1, {("orders", 1): 40})
    return told


def dataframe() -> Told:
    told = Told()
    told.events.service_ready()
    told.events.query_started("q", "r", "/checkpoint")
    told.events.micro_batch_completed(
        Numbers(
            number=41,
            inputs={"in": 12},
            outputs={"out": 2},
            phases_s={"plan": 0.1, "work": 0.5, "publish": 0.2, "total": 0.8},
            late=3,
            state_rows=1_200,
            state_bytes=3 * 2**20,
            watermark="2026-01-02T03:04:05.000Z",
        )
    )
    return told


def awaits_executors() -> Told:
    told = Told(engine="spark")
    told.events.executors_changed([], "")
    told.events.executors_awaited("no executor of spark://a has answered yet")
    return told


STATES: list[Callable[[], Told]] = [
    starting, running, troubled, draining, dataframe, spark, awaits_executors,
]  # fmt: skip


def words(page: Page) -> str:
    return " ".join(page.evaluate(WORDS).split())


def violations(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_axe_finds_nothing(browser, state, viewport, scheme):
    with (
        served(state()) as server,
        shown(browser, server, viewport=viewport, color_scheme=scheme) as page,
    ):
        for fold in page.locator("summary").all():
            fold.click()
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


def test_control_axe_finds_what_is_planted(browser):
    with served(running()) as server, shown(browser, server) as page:
        page.evaluate("document.querySelector('#filter').labels[0].remove()")
        page.evaluate("document.querySelector('#filter').removeAttribute('placeholder')")
        assert [one.split(":")[0] for one in violations(page)] == ["label"]


def test_the_page_renews_itself_without_a_load_and_what_was_opened_and_typed_stays(browser):
    told = many(45)
    with served(told) as server, shown(browser, server) as page:
        page.evaluate("window.same = true")
        page.locator("#settings summary").click()
        page.locator("#filter").fill("orders/4")
        rows = page.locator("#inputs tbody tr:visible")
        expect(rows).to_have_count(6)  # 4 and 40 to 44, of which the first is folded
        told.metrics.transactions.of("committed").inc(76)
        told.wall_s += 7
        expect(page.locator("#transactions dd").first).to_have_text("77", timeout=AGAIN_MS)
        assert page.evaluate("window.same")
        expect(page.locator("#settings dl")).to_be_visible()
        expect(rows).to_have_count(6)
        expect(page.locator("#filter")).to_be_focused()
        page.locator("#filter").fill("")
        expect(rows).to_have_count(20)


def test_boxes_come_and_go_with_what_they_show(browser):
    told = running()
    with served(told) as server, shown(browser, server) as page:
        expect(page.locator("#causes")).to_be_hidden()
        told.events.claims_unavailable("timeout", "pause")
        expect(page.locator("#boxes > :first-child")).to_contain_text("Not ready", timeout=AGAIN_MS)
        expect(page).to_have_title("shop: paused 3", timeout=AGAIN_MS)
        expect(page.locator("#icon")).to_have_attribute("href", re.compile("d0222f"))
        told.events.claims_recovered(3)
        expect(page.locator("#causes")).to_be_hidden(timeout=AGAIN_MS)
        told.events.micro_batch_completed(Numbers(number=3, inputs={"in": 12}))
        expect(page.locator("#cards > #micro-batch + #process")).to_be_visible(timeout=AGAIN_MS)


def test_paused_it_stays_as_it_is_until_it_is_resumed(browser):
    told = running()
    with served(told) as server, shown(browser, server) as page:
        page.get_by_role("button", name="Pause updates").click()
        expect(page.get_by_role("status")).to_contain_text("Paused at 22:13:40 UTC")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        told.wall_s += 60
        page.wait_for_timeout(4_500)  # twice what it waits between two requests
        assert asked == []
        page.get_by_role("button", name="Resume updates").click()
        expect(page.locator("footer time")).to_have_text("22:14:40 UTC", timeout=AGAIN_MS)


def test_when_the_process_has_gone_the_page_stays_and_says_since_when(browser):
    told = running()
    with served(told) as server:
        port = server.port
        opened = shown(browser, server)
        page = opened.__enter__()
    status = page.get_by_role("status")
    expect(status).to_contain_text("No answer since 22:13:40 UTC", timeout=AGAIN_MS)
    expect(page.locator("#inputs tbody tr")).to_have_count(3)
    assert violations(page) == []
    told.wall_s += 60
    with served(told, port):
        expect(status).to_have_text("Live", timeout=AGAIN_MS)
        expect(page.locator("footer time")).to_have_text("22:14:40 UTC")
        opened.__exit__(None, None, None)


def test_a_page_that_was_never_given_a_status_says_why_and_leads_to_what_answers(browser):
    told = running()
    page = browser.new_page()
    with served(told) as server:
        asked = server.routes
        status, asked._status = asked._status, lambda: {"lag": 1 / 0}
        page.goto(f"http://127.0.0.1:{server.port}/")
        said = "The status cannot be had (500 ZeroDivisionError); the pages below answer"
        expect(page.get_by_role("status")).to_contain_text(said, timeout=AGAIN_MS)
        expect(page.locator("#boxes")).to_be_hidden()
        expect(page.locator("footer a").first).to_be_visible()
        assert violations(page) == []
        asked._status = status
        expect(page.locator("#inputs tbody tr")).to_have_count(3, timeout=AGAIN_MS)
    page.close()


def test_without_scripts_it_says_where_the_same_data_is(browser):
    with served(running()) as server, shown(browser, server, java_script_enabled=False) as page:
        expect(page.locator("noscript p")).to_contain_text("This page needs JavaScript.")
        address = page.locator("noscript a").get_attribute("href")
        assert page.request.get(f"{page.url}{address}").json()["app"] == "shop"


def test_below_a_path_of_a_proxy_it_finds_its_files_and_its_data(browser):
    """The proxy: every request below /pods/shop-0/ goes to the process, without that path."""
    with served(running()) as server:
        page = browser.new_page()
        base = f"http://127.0.0.1:{server.port}/"
        page.route(
            "**/pods/shop-0/*",
            lambda route: route.fulfill(
                response=route.fetch(url=base + route.request.url.rpartition("/")[2])
            ),
        )
        page.goto(f"{base}pods/shop-0/")
        expect(page.locator("#inputs tbody tr")).to_have_count(3, timeout=AGAIN_MS)
        assert page.evaluate("document.styleSheets.length") == 2
        page.close()


def test_no_page_can_frame_it(browser):
    with served(running()) as server:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.port}/livez")
        with page.expect_event("console", lambda line: "frame" in line.text.lower()):
            page.evaluate(
                "document.body.append(Object.assign(document.createElement('iframe'), {src: '/'}))"
            )
        page.close()


def test_cells_carry_the_name_of_their_column_on_a_phone(browser):
    with served(running()) as server, shown(browser, server, viewport=PHONE) as page:
        names = (
            page.locator("#inputs tbody tr")
            .first.locator("td")
            .evaluate_all("cells => cells.map(cell => getComputedStyle(cell, '::before').content)")
        )
        assert [json.loads(name) for name in names] == [
            "low", "last stable", "end", "committed", "position", "lag", "lag, time", "deleted in",
            "open for", "seen",
        ]  # fmt: skip


def test_240_partitions_are_shown_within_a_second_and_300_kilobytes(browser, in_time):
    with served(many(240)) as server, shown(browser, server) as page:
        began_s = time.perf_counter()
        page.reload()
        page.locator("#inputs tbody tr").nth(239).wait_for(state="attached")
        in_time(time.perf_counter() - began_s, 1.0)
        parts = (
            "",
            "page.css",
            "page.js",
            "elements.js",
            "uPlot.min.css",
            "uPlot.iife.min.js",
            "status.json",
        )
        assert sum(len(page.request.get(page.url + part).body()) for part in parts) <= 300_000


def long() -> Told:
    """Return a worker whose names and figures are as long as those of a live one become."""
    told, topic = troubled(), "orders.of-a-shop.with-a-long-name.v2"
    told.events.partitions_assigned([(topic, at) for at in range(45)])
    log = LogOffsets(8_876_543_210_987, 9_876_543_210_987, 9_876_543_210_987)
    mine = msgspec.structs.replace(OURS, topic=topic, log=log, margin_s=600.0)
    told.work(
        *(msgspec.structs.replace(mine, partition=at) for at in range(45)),
        msgspec.structs.replace(OUT_LAG, topic=topic, open_s=75.0, log=log),
    )
    told.over(10, 123_456_789)
    told.events.claims_unavailable("timeout " + "of-a-host-with-a-long-name." * 9, "pause")
    return told


def test_no_text_leaves_its_box_at_any_width_of_a_phone_or_a_desk(browser):
    with served(long()) as server, shown(browser, server) as page:
        for fold in page.locator("summary").all():
            fold.click()
        for width in sorted({*range(360, 1_601, 31), *range(1_236, 1_284, 4)}):
            page.set_viewport_size({"width": width, "height": 900})
            assert (width, page.evaluate(OUTSIDE)) == (width, [])
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        # Control: what does not wrap is found.
        page.evaluate("document.styleSheets[1].insertRule('td { white-space: nowrap !important }')")
        page.set_viewport_size({"width": 1_000, "height": 900})
        assert page.evaluate(OUTSIDE) != []


def test_what_is_zero_is_folded_and_columns_have_their_groups(browser):
    with served(running()) as server, shown(browser, server) as page:
        assert page.locator("#inputs .groups th:visible").all_text_contents() == [
            "log",
            "group",
            "risk",
        ]
        expect(page.locator("#inputs tbody th:visible")).to_have_text(["orders/2", "orders/1"])
        bars = page.locator("#inputs tbody rect").evaluate_all(
            "rects => rects.map(rect => rect.getAttribute('width'))"
        )
        assert bars == ["100", "50", "0"]
        assert "1 without lag" in words(page)
        assert "0 aborted, producers rebuilt" in words(page)
        assert "No warnings or errors." in words(page)


def test_a_worker_at_risk_runs_and_is_amber_and_its_title_has_the_lag(browser):
    told = many(3)
    told.work(msgspec.structs.replace(OURS, margin_s=5.0, log=LogOffsets(0, 12_005, 12_005)))
    told.over(10, 1)
    with served(told) as server, shown(browser, server) as page:
        expect(page.locator("#state.warn")).to_have_text("running, at risk")
        expect(page.locator("#causes.warn h2")).to_have_text("Ready, at risk")
        assert page.title() == "shop: running, at risk ▲ 12\xa0k"
        expect(page.locator("#icon")).to_have_attribute("href", re.compile("d48806"))


def test_the_slowest_of_the_last_transactions_can_be_chosen_and_stays_chosen(browser):
    told = running()
    for slow_s in (0.5, 0.1, 0.2, 0.3):
        phases_s = {"transform": slow_s, "commit": 0.01}
        told.wall_s += 1
        told.events.transaction_committed(msgspec.structs.replace(SETTLED, phases_s=phases_s))
    with served(told) as server, shown(browser, server) as page:
        assert page.locator("#last svg g").count() == 5
        slowest = page.locator("#last button")
        expect(slowest).to_have_text(["last", "510.0 ms", "310.0 ms", "210.0 ms"])
        slowest.nth(1).press("Enter")
        expect(page.locator("#last .phases")).to_contain_text("500.0 ms")
        told.wall_s += 9
        expect(page.locator("#last")).to_contain_text("12.0 s ago", timeout=AGAIN_MS)
        expect(slowest.nth(1)).to_be_focused()
        page.locator("#last svg g").nth(2).click(position={"x": 1, "y": 5})
        expect(page.locator("#last .phases")).to_contain_text("100.0 ms")


def test_events_of_the_hour_are_marked_and_other_members_are_linked(browser):
    told = running()
    told.over(10, 500)
    told.events.producer_rebuilt("fenced", 0.1)
    told.over(10, 100)
    told.members.told = (told.wall_s, {f"shop-shop-{at} (10.0.0.{at})": {} for at in range(2)})
    with served(told) as server, shown(browser, server) as page:
        expect(page.locator("#happened")).to_have_text("B: rebuild (1)")
        links = page.locator("#members a").evaluate_all("all => all.map(one => one.href)")
        assert links == ["http://10.0.0.1:9464/"]  # shop-0 is this process


flow = a_flow(app="orders", TELEMETRY__LAG_INTERVAL="1s")
PICTURE = os.environ.get("STATUS_PICTURE")


def test_a_live_run_is_shown_and_with_status_picture_it_is_that_of_the_pages(
    browser, flow, tmp_path
):
    """STATUS_PICTURE=docs/status.png and --timeout 900: it takes minutes, and the picture."""
    port, steps = free_port(), 18 if PICTURE else 3
    worker = flow.worker("orders-0", TELEMETRY__PORT=str(port))

    def kept(count: int) -> bool:
        return len(json.loads(ask(port, "/status.json")[1])["history"]["at"]) >= count

    flow.feed_beside(600)
    await_(lambda: "partitions_assigned" in worker.text(), 60, worker.text)
    flow.worker("orders-1")
    for part, pace in enumerate((300, 900, 500), start=1):
        flow.feed_beside(pace)
        await_(partial(kept, steps * part // 3), 20 + 15 * steps, worker.text)
    page = browser.new_page(viewport=DESK)
    page.goto(f"http://127.0.0.1:{port}/")
    expect(page.locator("#state")).to_have_text("running", timeout=90_000)
    expect(page.locator("#happened")).to_contain_text("R: rebalance")
    expect(page.locator("#chart-lag canvas")).to_be_visible()
    assert page.locator("#last svg g").count() > 20
    assert f"version {__version__}" in words(page)
    page.screenshot(path=PICTURE or tmp_path / "status.png")
    page.close()
