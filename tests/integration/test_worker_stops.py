"""What makes a running worker stop for good, and what brokers slow down."""

import statistics
import time
from typing import NamedTuple, cast

import pytest

from hapax.core.offset_commit import CommittedMetadata
from tests.kit.at_work import at_work, left, untouched
from tests.kit.commands import kafka_configs
from tests.kit.managed_process import HANG_S, WorkerProcess
from tests.kit.pipeline_under_test import PipelineUnderTest, source, values
from tests.kit.routes import a_route
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import Given, beside
from tests.kit.waiting import await_

# -- What makes a running worker stop for good: a lost position, much poison, a stop that hangs.


NEVER_CLOSED = """
import sys, threading
from hapax.__main__ import main
from hapax.kafka.consume.source import KafkaSource
KafkaSource.close = lambda self: threading.Event().wait()
sys.argv = ["hapax", "run"]
main()
"""

TEN = [b"%d" % number for number in range(10)]
route = a_route(*TEN)


# -- a stop that comes late ---------------------------------------------------------------


def test_stops_that_come_later_than_their_limit_are_no_deaths_and_condemn_nobody(route):
    route.write(*(Given(b"%d" % number, headers=(("sleep-s", b"3"),)) for number in range(3)))
    place = route.bootstrap, route.app, route.source
    settings = {"TRANSFORM": "tests.fault.business:sleep", "SHUTDOWN__TIMEOUT": "1s"}
    for _ in range(3):
        worker = route.worker(**settings)
        await_(lambda: is_marked(beside(*place)), HANG_S, worker.text)
        assert worker.terminate(HANG_S) == 0
        assert not is_marked(beside(*place))
        assert worker.lines("records_isolated") == []
    route.run_to_end(**settings)
    assert len(route.outputs()) == 13
    assert route.dead() == []


def is_marked(texts: dict[int, str | None]) -> bool:
    return any(CommittedMetadata.decode(text).deaths for text in texts.values())


# -- positions: exit code 6, poison: exit code 5 ------------------------------------------

LEAVES_WITHIN_S = 90


class Stopping(NamedTuple):
    """A worker or driver that must leave by itself, and its route."""

    route: PipelineUnderTest
    process: WorkerProcess

    def leaves(self, code: int, *words: str) -> None:
        """Wait for its exit, check the code and that the reasons hold these words."""
        self.process.process.wait(LEAVES_WITHIN_S)
        left(self.process, code, *words)
        if isinstance(self.process, SparkProcess):
            self.process.await_gone()


@pytest.fixture(scope="module", params=[WorkerProcess, SparkProcess], ids=["worker", "spark"])
def stopping(request, sandbox, tmp_path_factory):
    """All of them at once: most of the time a driver waits for its JVM, or for its next attempt."""
    routes: list[PipelineUnderTest] = []

    def stops(*records: bytes | Given, gap: bool = False, **settings: str | None) -> Stopping:
        route = PipelineUnderTest(sandbox, tmp_path_factory.mktemp("stopping"))
        routes.append(route)
        route.create()
        route.write(*records)
        if gap:  # ten records done, five more deleted before anybody has read them
            route.run_to_end()
            route.write(*records)
            sandbox.delete_records(route.source, 0, 15)
        return Stopping(route, route.start(request.param, "s-0", **settings))

    ill = (("raise", b""),)
    many = [Given(b"%d" % number, headers=() if number % 5 else ill) for number in range(4000)]
    try:
        yield {
            "refuse": stops(*TEN, INPUT__START="refuse"),
            "poison": stops(*TEN, DEAD_LETTER__TOPIC=None, TRANSFORM="tests.kit.orders:poison"),
            "rate": stops(*many, TRANSACTION__RECORDS_MAX="400", RETRY__BACKOFF="0ms"),
            "position": stops(*TEN, gap=True),
        }
    finally:
        for route in routes:
            route.close()


@pytest.mark.row("M5")
def test_a_group_without_offsets_leaves_with_6_where_starting_over_is_refused(stopping):
    case = stopping["refuse"]
    case.leaves(6, f"{case.route.source}/0", "HAPAX_INPUT__START=refuse")
    assert untouched(case.route)


@pytest.mark.row("M4", "SP13")
def test_a_position_that_was_deleted_leaves_with_6_and_names_what_is_missing(stopping):
    case = stopping["position"]
    case.leaves(6, f"{case.route.source}/0", "next record is 10", "15 to 20")
    assert case.route.committed() == {0: 10}
    assert values(case.route.outputs()) == TEN


@pytest.mark.row("T3", "SP16")
def test_poison_without_a_dead_letter_topic_leaves_with_5_and_names_the_record(stopping):
    case = stopping["poison"]
    case.leaves(5, f"{case.route.source}/0/0", "HAPAX_DEAD_LETTER__TOPIC", "ValueError")
    assert untouched(case.route)


@pytest.mark.row("T3")
def test_too_many_dead_letters_leave_with_5_and_nothing_of_the_last_batch(stopping):
    case = stopping["rate"]
    case.leaves(5, "HAPAX_DEAD_LETTER__RATE_MAX", "nothing of the last batch")
    assert case.route.committed() == {0: 800}
    done = [source(record) for record in (*case.route.outputs(), *case.route.dead())]
    assert sorted(done) == list(range(800))


# -- a stop that hangs: exit code 7 -------------------------------------------------------


class NeverClosed(WorkerProcess):
    """A worker whose consumer never comes back from its farewell."""

    command = ("-c", NEVER_CLOSED)


def test_a_stop_whose_farewell_hangs_ends_with_7_after_its_time_and_nothing_is_doubled(
    route, in_time
):
    worker = at_work(
        route.start(NeverClosed, "w-0", SHUTDOWN__TIMEOUT="1s", TRANSACTION__TIMEOUT="1s")
    )
    began_s = time.monotonic()
    worker.process.terminate()
    worker.ends_with(7)
    took_s = time.monotonic() - began_s
    assert took_s >= 11, "1 s to drain, 1 s and 10 s to say farewell"
    in_time(took_s, 25)
    (fired,) = worker.lines("watchdog_fired")
    assert fired["call"] == "stop"
    assert any(place.endswith(" wait") for place in cast("list[str]", fired["stack"])), fired
    route.run_to_end()
    assert len(route.outputs()) == 10


# -- A producer quota of the brokers: transactions that would outlive their timeout become smaller.


QUOTA = 400_000
RECORD_BYTES, RECORDS = 10_000, 1_600
TIMEOUT_S = 5.0

short_transactions = a_route(
    created=False,
    TRANSFORM=None,
    TRANSACTION__TIMEOUT=f"{TIMEOUT_S:g}s",
    GROUP__SESSION_TIMEOUT="10s",
)


@pytest.mark.long
def test_under_a_producer_quota_batches_shrink_to_what_fits_and_the_quota_is_used(
    short_transactions, in_time
):
    short_transactions.create()
    short_transactions.write(
        *(Given(b"%d" % number + b"." * RECORD_BYTES) for number in range(RECORDS))
    )
    for client_id in (f"{short_transactions.app}-w-0", f"{short_transactions.app}/w-0"):
        # Brokers hold back a client that produces more than so much (KIP-13).
        words = ("--entity-type", "clients", "--entity-name", client_id, "--add-config")
        kafka_configs(short_transactions.bootstrap, *words, f"producer_byte_rate={QUOTA}")
    began_s = time.monotonic()
    worker = short_transactions.run_to_end(TELEMETRY__LOG_LEVEL="debug")
    took_s = time.monotonic() - began_s
    assert [source(record) for record in short_transactions.outputs()] == list(range(RECORDS))
    settled = worker.lines("transaction_committed")
    halved = worker.lines("batch_halved")
    sizes = [int(str(line["records"])) for line in settled]
    seen = f"{took_s:.1f} s, sizes {sizes}, halved {len(halved)} times"
    least_s = RECORDS * RECORD_BYTES / QUOTA
    assert took_s > 0.5 * least_s, f"the quota was not in force: {seen}"
    in_time(took_s, 1.7 * least_s + 3 * TIMEOUT_S)
    assert halved, seen
    # A larger one is tried now and then: what counts is the size of most.
    assert statistics.median(sizes[-10:]) <= max(sizes) / 2, seen
