"""Later tries on a real broker: due in time, through kills, with the claim of the original."""

import json
import random
import time

import pytest
from confluent_kafka import Consumer, TopicPartition

from hapax.core.records import Record
from hapax.kafka.consume.delay_buffer import RECORDS_MAX
from hapax.operations.audit.result import Audit
from hapax.processing.retry_later import LEVELS, WAITS_MS
from tests.kit.accounted import accounted
from tests.kit.at_work import await_told
from tests.kit.claim_stores import redis_server
from tests.kit.later import assigned, waits
from tests.kit.managed_process import WorkerProcess
from tests.kit.night import Desk
from tests.kit.pipeline_under_test import PipelineUnderTest, metric
from tests.kit.probes import ask, free_port
from tests.kit.proof import rounds
from tests.kit.routes import a_route
from tests.kit.topics import Given, read_back
from tests.kit.waiting import await_

IN_ORDER = {"message.timestamp.type": "LogAppendTime"}
route = a_route(
    redis=True,
    config={"target": IN_ORDER, "dead_letters": IN_ORDER},
    partitions=2,
    TRANSFORM="tests.kit.later:patient",
    DEDUP__ID="header:id",
)


def topic_of(route: PipelineUnderTest, partitions: int = LEVELS) -> str:
    route.sandbox.create_topic(f"{route.app}-retry", partitions)
    return f"{route.app}-retry"


def test_a_retry_topic_that_keeps_only_the_last_of_a_key_is_refused_at_the_start(route):
    route.sandbox.create_topic(f"{route.app}-retry", LEVELS, {"cleanup.policy": "compact"})
    worker = route.worker(RETRY__TOPIC=f"{route.app}-retry")
    worker.ends_with(3)
    assert "all but the last are deleted; set it to delete" in worker.text()


def wish(number: int, after: float, until: float = 0.0) -> Given:
    value = {"n": number, "after": after, "until": until}
    return Given(json.dumps(value).encode(), b"k%d" % number, (("id", b"%d" % number),), -1)


def test_a_record_comes_back_as_it_was_and_its_output_names_the_original(route, in_time):
    retry = topic_of(route)
    worker = route.worker(RETRY__TOPIC=retry)
    await_(lambda: bool(worker.lines("service_ready")), 30, worker.text)
    route.write(wish(1, 2.5, time.time() + 2))
    route.await_outputs(1)
    (output,) = route.outputs()
    headers = dict(output.headers)
    assert headers["hapax-id"] == b"1"
    ((of, moves),) = waits(read_back(route.bootstrap, retry)).items()
    assert headers["hapax-source"] == of.encode()
    assert not [name for name in headers if name.startswith("hapax-retry")]
    assert [one.move for _, one in moves] == list(range(1, len(moves) + 1))
    late_s = output.timestamp_ms / 1000 - moves[-1][1].due / 1000
    assert late_s >= 0
    in_time(late_s, LATE_MAX_S)


RECORDS, KILLS = rounds(300, 10_000), rounds(2, 19)
PART, TWICE, TRIES = RECORDS // (KILLS + 1), 20, 2
LATE_MAX_S = rounds(5, 1)
"""With all rounds nothing else has the machine."""
TURNS, A_BATCH = 8, 500
SETTLES_S = 0.5
"""Between the first commit of a process that was killed and its having read what waits."""


def await_commit_after(worker: WorkerProcess, commits: int) -> None:
    await_(lambda: len(worker.lines("transaction_committed")) > commits, 30, worker.text)


@pytest.mark.rounds
def test_300_records_come_back_through_two_kills_each_as_often_as_it_must_and_in_time(
    route, in_time
):
    """10,000 through 19 kills with all rounds."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    chance, retry = random.Random(seed), topic_of(route)
    given = [wish(number, round(chance.uniform(1, 8), 3)) for number in range(RECORDS)]
    settings = {"RETRY__TOPIC": retry, "RETRY__LATER_ATTEMPTS": str(TRIES)}
    worker = route.worker(TRANSACTION__TIMEOUT="4s", DEAD_LETTER__RATE_MAX="1", **settings)
    await_(lambda: bool(worker.lines("service_ready")), 30, worker.text)
    down: list[tuple[float, float]] = []
    live: list[Audit] = []
    for part in (given[at : at + PART] for at in range(0, RECORDS, PART)):
        route.write(*part)
        route.write(*chance.sample(part, TWICE))  # the same events again, while the first wait
        time.sleep(chance.uniform(1.0, 2.0))
        if len(down) < KILLS:
            began_s, commits = time.time(), len(worker.lines("transaction_committed"))
            worker.kill()
            worker.start()
            await_commit_after(worker, commits)
            down.append((began_s, time.time() + SETTLES_S))
            live.append(accounted(route, settings))
    await_(lambda: len(route.dead()) >= RECORDS, 90, route._logs)
    assert worker.terminate() == 0
    assert [audit.anomalies for audit in live] == [{}] * KILLS
    assert live[0].totals["waiting"] > 0
    end = accounted(route, settings)
    assert end.anomalies == {}, end.examples
    assert (end.totals["dead_letters"], end.totals["duplicates"]) == (RECORDS, (KILLS + 1) * TWICE)
    letters = {dict(one.headers)["hapax-source"].decode(): one for one in route.dead()}
    waited = waits(read_back(route.bootstrap, retry))
    assert len(route.dead()) == len(letters) == len(waited) == RECORDS
    assert route.outputs() == []
    late_s = []
    for of, moves in waited.items():
        letter, after = letters[of], json.loads(moves[0][0].value or b"")["after"]
        assert dict(letter.headers)["hapax-attempts"] == b"%d" % (TRIES + 1)
        assert [one.move for _, one in moves] == list(range(1, len(moves) + 1))
        assert {one.attempt for _, one in moves} == set(range(1, TRIES + 1))
        dues = [max(one.due for _, one in moves if one.attempt == n) for n in range(1, TRIES + 1)]
        # What asks again says when it was called: its due time less its delay.
        called = [dues[1] / 1000 - after, letter.timestamp_ms / 1000]
        for due_ms, at_s in zip(dues, called, strict=True):
            assert at_s >= due_ms / 1000 - 0.002, "never early"
            if not any(began < at_s and due_ms / 1000 < ended for began, ended in down):
                late_s.append(at_s - due_ms / 1000)
    print(f"{len(late_s)} of {RECORDS * TRIES} due while running, latest {max(late_s):.3f} s")  # noqa: T201
    assert len(late_s) > RECORDS * TRIES / 3
    in_time(max(late_s), LATE_MAX_S)


def test_what_waits_in_a_member_that_leaves_is_called_once_by_the_one_that_stays(route):
    retry, count = topic_of(route), 80
    settings = {
        "RETRY__TOPIC": retry,
        "RETRY__LATER_ATTEMPTS": "1",
        "DEAD_LETTER__RATE_MAX": "1",
        "GROUP__MEMBERSHIP": "dynamic",
    }
    workers = [route.worker(f"w-{number}", **settings) for number in (0, 1)]
    for worker in workers:
        await_(lambda worker=worker: bool(assigned(worker)), 60, worker.text)  # type: ignore[misc]
    route.write(*(wish(number, 4 + number % 3) for number in range(count)))
    await_(lambda: len(waits(read_back(route.bootstrap, retry))) == count, 30, route._logs)
    level = f"{retry}/{WAITS_MS.index(4_000)}"  # where all of them wait first
    await_(lambda: any(level in assigned(worker) for worker in workers), 30, route._logs)
    leaving = next(worker for worker in workers if level in assigned(worker))
    assert leaving.terminate() == 0
    await_(lambda: len(route.dead()) >= count, 60, route._logs)
    assert all(worker is leaving or worker.terminate() == 0 for worker in workers)
    found = accounted(route, settings)
    assert found.anomalies == {}, found.examples
    assert found.totals["dead_letters"] == count == len(route.dead())
    assert {dict(one.headers)["hapax-attempts"] for one in route.dead()} == {b"2"}


@pytest.mark.parametrize("why", ["hapax pause", "Redis away"])
def test_what_waits_in_memory_stays_within_its_bound_when_a_pause_ends(route, tmp_path, why):
    retry, port, count = topic_of(route), free_port(), 4 * RECORDS_MAX

    def waiting() -> float:
        return metric(ask(port, "/metrics")[1], "hapax_records_waiting")

    with redis_server(tmp_path / "redis") as store:
        settings = {
            "RETRY__TOPIC": retry,
            "DEDUP__REDIS_URL": store.url,
            "TELEMETRY__PORT": str(port),
            "TRANSACTION__RECORDS_MAX": str(A_BATCH),
        }
        worker = route.worker(**settings)
        route.write(*(wish(number, 3600) for number in range(count)))
        await_told(worker, "service_ready")
        await_(lambda: waiting() >= RECORDS_MAX, 90, worker.text)
        route.await_lag_0()
        if why == "hapax pause":
            desk = Desk(route, **settings)
            desk.ask("pause")
            desk.ask("resume")
        else:
            store.kill()
            route.write(wish(count, 0, until=1.0))
            await_told(worker, "claims_unavailable")
            store.start()
            await_told(worker, "claims_recovered")
        for number in range(TURNS):  # each is a turn at least, in which a batch could come
            before = len(route.outputs())
            route.write(wish(count + 1 + number, 0, until=1.0))
            route.await_outputs(before + 1)
        assert RECORDS_MAX <= waiting() < RECORDS_MAX + 2 * A_BATCH
        assert worker.terminate() == 0


def test_a_record_that_waits_is_traced_and_accounted_for_and_one_that_was_passed_has_no_effect(
    route,
):
    retry = topic_of(route)
    route.write(wish(1, 3600), wish(2, 0, until=1.0))
    route.run_to_end(RETRY__TOPIC=retry, GROUP__MEMBERSHIP="dynamic")  # it leaves at once
    desk = Desk(route, RETRY__TOPIC=retry)
    (one,) = desk.ask("trace", "1")["records"]
    assert one["verdict"].startswith("waiting for retry until 20")
    assert one["verdict"].endswith("later try 1, 1 call so far")
    (stored,) = read_back(route.bootstrap, retry)
    (same,) = desk.ask("trace", str(stored.coordinates))["records"]
    assert same["verdict"] == one["verdict"]
    found = accounted(route, {"RETRY__TOPIC": retry})
    fates = ("records", "with_outputs", "waiting", "unexplained")
    assert [found.totals.get(name, 0) for name in fates] == [2, 1, 1, 0]
    pass_over(route, stored)
    found = accounted(route, {"RETRY__TOPIC": retry})
    assert [found.totals.get(name, 0) for name in fates] == [2, 1, 0, 1]


def pass_over(route: PipelineUnderTest, record: Record) -> None:
    """Set the group's offset beyond what waits: as if its effect had been lost."""
    consumer = Consumer({"bootstrap.servers": route.bootstrap, "group.id": route.app})
    beyond = TopicPartition(record.topic, record.partition, record.offset + 1)
    consumer.commit(offsets=[beyond], asynchronous=False)
    consumer.close()


def test_a_bounded_run_ends_with_the_input_and_says_how_many_wait(route):
    retry = topic_of(route)
    route.write(*(wish(number, 3600) for number in range(5)))
    (line,) = route.run_to_end(RETRY__TOPIC=retry).lines("records_left_waiting")
    assert 5 <= int(str(line["records"])) + int(str(line["unread"])) <= 10  # markers are counted
    assert route.lag() == 0


@pytest.mark.parametrize("partitions", [0, LEVELS - 1])
def test_a_retry_topic_without_its_levels_is_refused_with_the_command_that_makes_them(
    route, partitions
):
    if partitions:
        topic_of(route, partitions)
    worker = route.worker(RETRY__TOPIC=f"{route.app}-retry")
    worker.ends_with(3)
    assert f"--topic {route.app}-retry --partitions {LEVELS}" in worker.text()
