"""``hapax backfill``: its two ends, who may read a span, killed and handed over."""

import json
import signal
import subprocess
import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from hapax.core.offset_commit import CommittedMetadata
from tests.kit import topics
from tests.kit.accounted import accounted
from tests.kit.at_work import QUICK
from tests.kit.commands import run_captured
from tests.kit.flow import Flow
from tests.kit.managed_process import WorkerProcess
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.routes import a_flow, a_route
from tests.kit.spark_process import SparkProcess
from tests.kit.waiting import await_

# -- Killed on its way, started again, handed over while records come ----------------------

OLD, PATIENCE_S, LONG = 15_000, 120, {"timeout_ms": 900_000}
COMMAND = (sys.executable, "-m", "hapax", "backfill", "--json", "--from", "earliest", "--until")
KINDS: list[type[WorkerProcess]] = [WorkerProcess, SparkProcess]


class Backfilling(NamedTuple):
    """A backfill of what was there at a moment, where each partition must end, and what holds it.

    While the transaction is open the end is not reached, however fast the machine is.
    """

    flow: Flow
    process: WorkerProcess
    words: tuple[str, ...]
    stops: dict[int, int]
    opened: Producer

    def start(self) -> None:
        self.process.start(self.words)

    def done(self) -> int:
        found = topics.committed(self.flow.bootstrap, self.flow.app, self.flow.source)
        return sum(offset or 0 for offset in found.values())

    def states(self, state: str) -> list[dict[str, object]]:
        lines = self.process.text().splitlines()
        return [found for found in map(_read, lines) if found.get("state") == state]


def _read(line: str) -> dict[str, object]:
    try:
        found: dict[str, object] = json.loads(line)
    except ValueError:  # a torn line of the one that was killed, or a word of Spark's
        return {}
    return found


@pytest.fixture(params=KINDS, ids=["worker", "spark"])
def backfilling(request, sandbox, tmp_path):
    """Old records, a moment, and records that come after it all the time."""
    flow = Flow(sandbox, tmp_path, TRANSACTION__RECORDS_MAX="50", **QUICK)
    flow.feed(OLD)
    with topics.produce_open(flow.bootstrap, flow.source, b"open", **LONG) as opened:
        moment = datetime.now(UTC)
        end_ms = int(moment.timestamp() * 1000)
        flow.feed_beside(300)
        await_(lambda: len(first_from(flow, end_ms)) == 4, 30)
        stops = first_from(flow, end_ms)
        process = request.param(flow.environment(), "b-0", tmp_path / "backfill.log")
        flow.workers.append(process)
        words = (*COMMAND, moment.isoformat(timespec="milliseconds"))
        yield Backfilling(flow, process, words, stops, opened)
    flow.close()


def first_from(flow: Flow, time_ms: int) -> dict[int, int]:
    """Return by partition the offset of the first record of that time or later, aborted or not."""
    records = reversed(topics.read_back(flow.bootstrap, flow.source, "read_uncommitted"))
    return {one.partition: one.offset for one in records if one.timestamp_ms >= time_ms}


def test_killed_and_handed_over_to_a_worker_every_record_has_its_effect_once(backfilling):
    flow, process, total = backfilling.flow, backfilling.process, sum(backfilling.stops.values())
    backfilling.start()
    for share in (0.2, 0.5):
        await_(lambda share=share: backfilling.done() > total * share, PATIENCE_S, process.text)  # type: ignore[misc]
        if isinstance(process, SparkProcess) and share > 0.3:
            assert process.strike(signal.SIGKILL, "driver") == 1
            process.exit_code()
            process.strike(signal.SIGKILL, "all")
        else:
            process.kill()
        assert backfilling.done() < total
        process.start(backfilling.words)
    backfilling.opened.abort_transaction(30)
    process.ends_with(0)
    assert flow.committed() == backfilling.stops
    [told] = backfilling.states("done")
    assert (told["done"], told["total"]) == (total, total)
    assert told["hand_over"] == {
        "app": flow.app,
        "unset": ["HAPAX_INPUT__START", "HAPAX_INPUT__END"],
        "command": "hapax run",
    }
    # Once more: nothing is left of it.
    process.start(backfilling.words)
    process.ends_with(0)
    assert flow.committed() == backfilling.stops
    flow.worker("w-0")
    assert flow.finish().anomalies == {}
    assert sum(offset or 0 for offset in flow.committed().values()) > total


small = a_flow(TRANSACTION__RECORDS_MAX="50")


def test_a_backfill_that_is_stopped_leaves_with_1_and_goes_on_from_there(small, tmp_path):
    small.feed(3_000)
    words = (*COMMAND, "latest")
    process = WorkerProcess(small.environment(), "b-0", tmp_path / "backfill.log")
    small.workers.append(process)
    with topics.produce_open(small.bootstrap, small.source, b"open", **LONG) as opened:
        process.start(words)
        running = Backfilling(small, process, words, {}, opened)
        await_(lambda: running.done() > 200, 30, process.text)
        assert process.terminate() == 1
    [stopped] = running.states("stopped")
    assert 0 < int(str(stopped["done"])) < int(str(stopped["total"]))
    process.start(words)
    process.ends_with(0)
    again = running.states("planned")[1]
    assert int(str(again["done"])) >= int(str(stopped["done"]))
    assert again["total"] == stopped["total"]
    small.worker("w-0")  # its end is the marker of the abort
    assert small.finish().anomalies == {}


# -- Both ends of a backfill, to the record: markers, aborted records, holes and empty partitions.


T = 1_700_000_000_000
"""Unix ms; records are seconds after it."""
START, END = "2023-11-14T22:13:30Z", "2023-11-14T22:13:40Z"
"""Ten and twenty seconds after T."""
SPAN = {"INPUT__START": START, "INPUT__END": END}
ENGINES: list[type[WorkerProcess]] = [WorkerProcess, SparkProcess]


def at(partition: int, *seconds: float) -> list[topics.Given]:
    """Return a record of each time, whose value names partition and time."""
    return [
        topics.Given(b"%d:%g" % (partition, s), partition=partition, timestamp_ms=T + int(s * 1000))
        for s in seconds
    ]


@pytest.fixture
def six_ends(sandbox, tmp_path):
    """Six partitions, each with another end.

    0 plain records · 1 markers and aborted records around both ends · 2 empty · 3 all too early
    4 all too late · 5 a transaction that is open across the end, and is committed later
    """
    made = PipelineUnderTest(sandbox, tmp_path, partitions=6)
    made.create(source=topics.FOREVER)
    servers, source = made.bootstrap, made.source
    made.write(*at(0, 8, 9.999, 10, 11, 19.999, 20, 21))
    topics.produce_committed(servers, source, *at(1, 9))
    topics.produce_aborted(servers, source, *at(1, 10))
    topics.produce_committed(servers, source, *at(1, 12, 13))
    topics.produce_aborted(servers, source, *at(1, 19, 19.5))
    topics.produce_aborted(servers, source, *at(1, 22))
    topics.produce_committed(servers, source, *at(1, 23))
    made.write(*at(3, 1, 2))
    made.write(*at(4, 30, 31))
    made.write(*at(5, 11))
    yield made
    made.close()


EXPECTED = [b"0:10", b"0:11", b"0:19.999", b"1:12", b"1:13", b"5:11", b"5:12"]


@pytest.mark.parametrize("kind", ENGINES)
def test_each_partition_begins_and_ends_at_the_record_of_the_time(six_ends, kind):
    with topics.produce_open(six_ends.bootstrap, six_ends.source, *at(5, 12, 21)) as producer:
        process = six_ends.start(kind, "b-0", **SPAN)
        # The open transaction began before the end: what it holds before it is waited for.
        with pytest.raises(TimeoutError):
            await_exit(process, 12 if kind is WorkerProcess else 30)
        producer.commit_transaction(30)
        process.ends_with(0)
    assert sorted(str(r.value) for r in six_ends.outputs()) == sorted(map(str, EXPECTED))
    # 1: offsets 0 record, 1 marker, 2 aborted, 3 marker, 4 and 5 records, 6 marker, 7 and 8
    # aborted, 9 marker, 10 aborted and beyond the end.
    assert six_ends.committed() == {0: 5, 1: 10, 2: 0, 3: 2, 4: 0, 5: 2}
    found = accounted(six_ends)
    assert (found.clean, found.totals["records"]) == (True, len(EXPECTED)), found.totals


def await_exit(process: WorkerProcess, within_s: float) -> None:
    try:
        process.process.wait(within_s)
    except subprocess.TimeoutExpired:
        raise TimeoutError from None


# -- Who may read a span: several processes of one app, and nobody who came for something else.


PARTITIONS, EACH = 4, 25
ALL = {"INPUT__END": "latest", "GROUP__SESSION_TIMEOUT": "6s", "TRANSACTION__TIMEOUT": "4s"}
WITHIN_S = 60

shared = a_route(
    *(
        topics.Given(b"%d/%d" % (partition, n), partition=partition)
        for n in range(EACH)
        for partition in range(PARTITIONS)
    ),
    partitions=PARTITIONS,
)


def backfill(route: PipelineUnderTest, *words: str, **settings: str) -> tuple[int, str, str]:
    """Run the command to its end; return exit code, standard output and standard error."""
    end = run_captured(
        [sys.executable, "-m", "hapax", "backfill", *words],
        env={**route.environment(**settings), "HAPAX_INSTANCE": "b-0"},
        timeout=WITHIN_S,
    )
    return end.returncode, end.stdout, end.stderr


def ended(worker: WorkerProcess) -> int:
    return worker.exit_code()


def test_the_span_is_kept_by_workers_that_take_over_and_a_later_start_ends_at_once(shared):
    assert backfill(shared)[0] == 0
    worker = shared.worker("b-0")
    await_(lambda: worker.lines("service_started"), 30, worker.text)
    [line] = worker.lines("service_started")
    if find_spec("hapax_fast"):
        assert str(line["record_path"]).startswith("native")  # what is cut is cut there, too
    shared.write(*(topics.Given(b"later", partition=number) for number in range(PARTITIONS)))
    shared.end(worker)
    texts = topics.beside(shared.bootstrap, shared.app, shared.source).values()
    spans = [CommittedMetadata.decode(text).span for text in texts]
    assert [(span.start, span.stop) for span in spans if span] == [(0, EACH)] * PARTITIONS
    after = shared.committed()
    code, out, _err = backfill(shared, "--json")
    assert code == 0
    told = json.loads(out.splitlines()[-1])  # latest is what it was at the first start
    assert (told["state"], told["total"]) == ("done", PARTITIONS * EACH)
    assert shared.committed() == after == dict.fromkeys(range(PARTITIONS), EACH + 1)


def test_offsets_name_a_span_to_the_record(shared):
    def every(*offsets: int) -> str:
        return ",".join(f"{shared.source}/{n}/{offset}" for n, offset in enumerate(offsets))

    words = ("--from", every(3, 0, 24, 7), "--until", every(5, 0, 25, 8))
    code, out, _err = backfill(shared, *words, "--dry-run")
    assert (code, "4 offsets in 4 partitions, 0 of them done" in out) == (0, True)
    assert set(shared.committed().values()) == {None}
    code, out, _err = backfill(shared, *words)
    assert code == 0
    assert f"HAPAX_APP={shared.app} HAPAX_ENGINE=worker hapax run" in out
    assert {record.value for record in shared.outputs()} == {b"0/3", b"0/4", b"2/24", b"3/7"}
    assert shared.committed() == {0: 5, 1: 0, 2: 25, 3: 8}


def test_an_app_with_offsets_of_its_own_or_of_another_span_is_refused_and_nothing_is_read(shared):
    refusals = []
    code, _out, err = backfill(shared, "--from", "1d", "--until", "2030-01-01")
    refusals.append((code, "lies in the future" in err))
    code, _out, err = backfill(shared, "--from", f"{shared.source}/0/1")
    refusals.append((code, "names no offset of" in err))
    code, _out, err = backfill(shared, "--from", "latest")
    refusals.append((code, "leaves nothing before" in err))
    assert refusals == [(3, True), (2, True), (2, True)]
    assert set(shared.committed().values()) == {None}
    shared.run_to_end()
    done = shared.committed()
    code, _out, err = backfill(shared)
    assert (code, "already, which no span began" in err) == (3, True)
    worker = shared.worker("b-0", **ALL)
    assert ended(worker) == 3
    assert "already, which no span began" in worker.text()
    assert shared.committed() == done
    assert len(shared.outputs()) == PARTITIONS * EACH
