"""Groups: where they begin, what other clients and other names left them, and their protocols."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, NewPartitions

from hapax.sandbox import SandboxTopic
from tests.kit.at_work import QUICK, admin, await_exit, event, numbers, values
from tests.kit.flow import Flow
from tests.kit.managed_process import HANG_S, WorkerProcess
from tests.kit.night import Desk, ran
from tests.kit.orders import told
from tests.kit.raw_offsets import commit_raw
from tests.kit.routes import a_flow, a_route
from tests.kit.topics import Given, committed, delete_group, ends, produce
from tests.kit.waiting import await_

# -- Groups as other clients left them, recorded (kit/foreign), under each HAPAX_INPUT__START.
# Each recorded group is the group's state in one topic, so one run plays all of them.


LINES = (Path(__file__).parents[1] / "kit/foreign/groups.jsonl").read_text().splitlines()
GROUPS: list[dict[str, Any]] = [json.loads(line) for line in LINES]
COUNTS = (25, 23, 0, 20, 0)
"""Records of each partition when the client had left: what it had read, and what came later."""
LATER = 3
"""So many of them came after the time that START names."""
PLACES = tuple(max(0, count - 2) for count in COUNTS)

STARTS = {
    "earliest": (0,) * len(COUNTS),
    "latest": COUNTS,
    "time": tuple(max(0, count - LATER) for count in COUNTS),
    "places": PLACES,
}

dynamic = a_route(partitions=2, GROUP__MEMBERSHIP="dynamic")


class Left(NamedTuple):
    """A topic in the state in which a client left it."""

    topic: str
    offsets: list[tuple[int, int, str] | None]

    def begins(self, start: str) -> list[int]:
        """Return where each partition has to be read from."""
        placed = zip(self.offsets, STARTS[start], strict=True)
        return [by_start if offset is None else offset[0] for offset, by_start in placed]


def name(topic: str, partition: int, offset: int) -> bytes:
    return f"{topic}/{partition}/{offset}".encode()


def left_by_all(route) -> list[Left]:
    """Write the topics and commit the offsets, with their epochs and texts, as recorded."""
    found = [
        Left(f"{route.source}-{one['client']}-{one['start']}", one["offsets"]) for one in GROUPS
    ]
    route.sandbox.create_topics(*(SandboxTopic(one.topic, len(COUNTS)) for one in found))
    now_ms = int(time.time() * 1000)
    for topic, offsets in found:
        for partition, count in enumerate(COUNTS):
            ages_ms = [60_000 if offset >= count - LATER else 3_600_000 for offset in range(count)]
            records = (
                Given(name(topic, partition, at), partition=partition, timestamp_ms=now_ms - age_ms)
                for at, age_ms in enumerate(ages_ms)
            )
            produce(route.bootstrap, topic, *records)
        known = {number: one for number, one in enumerate(offsets) if one is not None}
        commit_raw(route.bootstrap, route.app, topic, known)
    return found


def setting(found: list[Left], start: str) -> str:
    half_an_hour_ago = datetime.fromtimestamp(time.time() - 1800, UTC).isoformat()
    every = (f"{one.topic}/{n}/{at}" for one in found for n, at in enumerate(PLACES))
    return {"time": half_an_hour_ago, "places": ",".join(every)}.get(start, start)


@pytest.mark.parametrize("start", STARTS)
def test_start_places_what_each_client_has_left_without_an_offset_and_nothing_else(dynamic, start):
    found = left_by_all(dynamic)
    settings = {
        "INPUT__TOPICS": ",".join(one.topic for one in found),
        "INPUT__START": setting(found, start),
    }
    shown: dict[str, list[int]] = {}
    for one in Desk(dynamic, **settings).ask("offsets")["partitions"]:
        shown.setdefault(one["topic"], []).append(one["position"])
    worker = dynamic.run_to_end(**settings)
    for one in found:
        new = [Given(name(one.topic, n, count), partition=n) for n, count in enumerate(COUNTS)]
        produce(dynamic.bootstrap, one.topic, *new)
    dynamic.run_to_end(**settings)

    assert shown == {one.topic: one.begins(start) for one in found}
    assert values(dynamic) == sorted(
        name(one.topic, partition, offset)
        for one in found
        for partition, (begin, count) in enumerate(zip(one.begins(start), COUNTS, strict=True))
        for offset in range(begin, count + 1)
    )
    for one in found:
        assert committed(dynamic.bootstrap, dynamic.app, one.topic) == ends(
            dynamic.bootstrap, one.topic
        )
    (passed,) = worker.lines("preflight_passed")
    for one in found:
        missing = one.offsets.count(None)
        remark = f"{one.topic}: {missing} of {len(COUNTS)} partitions have no offset, they begin at"
        partly = 0 < missing < len(COUNTS)
        assert any(remark in each for each in passed["remarks"]) == partly, one.topic


def test_a_group_of_the_consumer_protocol_is_continued_by_a_classic_member(dynamic):
    records = [Given(b"%d" % number, partition=0) for number in range(4)]
    dynamic.write(*records)
    properties = {
        "bootstrap.servers": dynamic.bootstrap,
        "group.id": dynamic.app,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
    }
    client = Consumer(properties)
    client.subscribe([dynamic.source])
    message = client.consume(1, 30)[0]
    client.commit(message=message, asynchronous=False)
    client.close()
    dynamic.run_to_end(INPUT__START="latest")
    assert values(dynamic) == [b"1", b"2", b"3"]


# -- A group that another client has used: it leaves no offset where it has read nothing ---

PARTITIONS, OLD = 4, 20
route = a_route(partitions=PARTITIONS, GROUP__MEMBERSHIP="dynamic")


def batch(name: bytes, partitions: range = range(PARTITIONS), count: int = OLD) -> list[Given]:
    return [Given(b"%s-%d" % (name, p), partition=p) for p in partitions for _ in range(count)]


def used_by_another_client(route) -> None:
    """Commit in partition 0 alone, with a text of its own, as Sarama and franz-go do."""
    client = Consumer({"bootstrap.servers": route.bootstrap, "group.id": route.app})
    offsets = [TopicPartition(route.source, 0, OLD, "a text é of another client")]
    client.commit(offsets=offsets, asynchronous=False)
    client.close()


def test_a_kill_right_after_a_takeover_changes_nothing_of_where_it_begins(route):
    route.write(*batch(b"old"))
    used_by_another_client(route)
    route.write(*batch(b"new", range(1)))
    worker = route.worker(INPUT__START="latest")
    route.await_outputs(1)
    worker.kill()
    ran(route, INPUT__START="latest")
    assert set(values(route)) == {b"new-0"}


def test_an_offset_set_by_hand_in_one_partition_leaves_start_to_the_others(route):
    route.write(*batch(b"old"))
    used_by_another_client(route)
    Desk(route).ask("offsets", "set", f"{route.source}/0/15", "--yes")
    ran(route, INPUT__START="latest")
    assert values(route) == [b"old-0"] * 5


# -- A group without an offset: new, or one that has worked and whose offsets are lost -----

FIRST, MORE = range(40), range(40, 50)
two_partitions = a_route(partitions=2, GROUP__MEMBERSHIP="dynamic")


def events(which: range) -> list[Given]:
    return [event(number, partition=number % 2) for number in which]


def forget_offsets(route) -> None:
    delete_group(route.bootstrap, route.app)
    assert route.committed() == {0: None, 1: None}


@pytest.mark.parametrize("start", ["earliest", "latest", "30d"])
def test_a_group_whose_offsets_are_lost_stops_with_what_its_outputs_propose(two_partitions, start):
    two_partitions.write(*events(FIRST))
    ran(two_partitions)
    forget_offsets(two_partitions)
    two_partitions.write(*events(MORE))
    places = [f"{two_partitions.source}/0/20", f"{two_partitions.source}/1/20"]
    await_exit(
        two_partitions.worker(INPUT__START=start), 6, *places, "hapax offsets set", "expired"
    )
    desk = Desk(two_partitions, INPUT__START=start)
    set_ = desk.ask("offsets", "set", two_partitions.source, "outputs", "--yes")
    assert [(one["partition"], one["offset"]) for one in set_["moves"]] == [(0, 20), (1, 20)]
    ran(two_partitions, INPUT__START=start)
    assert values(two_partitions) == sorted(one.value or b"" for one in events(range(50)))


def test_a_dead_letter_alone_tells_that_the_pipeline_has_worked(two_partitions):
    two_partitions.write(Given(b"no order", partition=1))
    ran(two_partitions, TRANSFORM="tests.kit.orders:poison")
    assert (len(two_partitions.outputs()), len(two_partitions.dead())) == (0, 1)
    forget_offsets(two_partitions)
    await_exit(two_partitions.worker(), 6, f"{two_partitions.source}/1/1")


def test_an_added_input_and_an_added_partition_begin_as_new_ones(two_partitions):
    two_partitions.write(*events(FIRST))
    ran(two_partitions)
    other = f"{two_partitions.app}-more"
    two_partitions.sandbox.create_topics(SandboxTopic(other, 1))
    produce(two_partitions.bootstrap, other, *(Given(value) for value in numbers(range(5))))
    client = admin(two_partitions)
    client.create_partitions([NewPartitions(two_partitions.source, 3)])[
        two_partitions.source
    ].result(30)
    await_(lambda: len(two_partitions.committed()) == 3, 30, lambda: "no third partition")
    producer = Producer({"bootstrap.servers": two_partitions.bootstrap})
    producer.produce(two_partitions.source, b"in the new one", partition=2)
    assert producer.flush(30) == 0
    two_partitions.run_to_end(INPUT__TOPICS=f"{two_partitions.source},{other}")
    assert len(values(two_partitions)) == 40 + 5 + 1


def test_a_member_that_is_back_at_once_reads_nothing_of_what_is_no_input_any_more(route):
    other = f"{route.app}-other"
    route.sandbox.create_topics(SandboxTopic(other, 2))
    both = route.worker(INPUT__TOPICS=f"{route.source},{other}", GROUP__MEMBERSHIP="static")
    route.write(*numbers(range(10)))
    route.await_outputs(10)
    assert both.terminate() == 0
    produce(route.bootstrap, other, *(Given(value) for value in numbers(range(10, 20))))
    before = committed(route.bootstrap, route.app, other)
    one = route.worker(
        GROUP__MEMBERSHIP="static"
    )  # within the session timeout, so it gets all that it had
    route.write(*numbers(range(20, 30)))
    await_(lambda: f"{other}: not read" in one.text(), 30, one.text)
    route.await_outputs(20)
    await_(lambda: len(one.lines("partitions_assigned")) > 1, 60, one.text)  # it has joined again
    route.write(*numbers(range(30, 40)))
    route.end(one)
    assert values(route) == sorted(numbers(range(10), range(20, 40)))
    assert committed(route.bootstrap, route.app, other) == before


def test_a_group_that_never_came_to_an_output_is_a_new_one(two_partitions):
    two_partitions.write(*(Given(b"", headers=(told(),), partition=number % 2) for number in FIRST))
    ran(two_partitions)
    assert (values(two_partitions), two_partitions.committed()) == ([], {0: 20, 1: 20})
    forget_offsets(two_partitions)
    ran(two_partitions)
    assert two_partitions.committed() == {0: 20, 1: 20}


# -- A pipeline that gets another name, and continues where it was -------------------------

RECORDS = 40


def renamed(route) -> dict[str, str]:
    return {"APP": f"{route.app}-v2"}


def test_a_pipeline_that_was_renamed_goes_on_where_it_was_once_offsets_are_adopted(
    redis_url, two_partitions
):
    name = {**renamed(two_partitions), "DEDUP__REDIS_URL": redis_url}
    two_partitions.write(*events(range(RECORDS)))
    ran(two_partitions, DEDUP__REDIS_URL=redis_url)
    two_partitions.write(*events(range(RECORDS, RECORDS + 10)))
    desk = Desk(two_partitions, **name)
    shown = desk.type("offsets", "adopt", two_partitions.app)
    assert (shown.exit_code, "Nothing was changed" in shown.stdout) == (0, True), shown.output
    assert "hapax claims rebuild" in shown.stdout
    done = desk.ask("offsets", "adopt", two_partitions.app, "--yes")
    assert [(one["partition"], one["offset"]) for one in done["moves"]] == [(0, 20), (1, 20)]
    desk.ask("claims", "rebuild", "--yes")
    two_partitions.write(*events(range(RECORDS)))  # sent once more
    worker = two_partitions.run_to_end(**name)
    assert values(two_partitions) == sorted(one.value or b"" for one in events(range(RECORDS + 10)))
    assert worker.lines("preflight_passed")[0]["remarks"] == []


def test_a_start_under_another_name_says_that_the_records_were_processed_before(two_partitions):
    two_partitions.write(*events(range(RECORDS)))
    ran(two_partitions)
    worker = two_partitions.run_to_end(**renamed(two_partitions))
    assert f"hapax offsets adopt {two_partitions.app}" in str(
        worker.lines("preflight_passed")[0]["remarks"]
    )
    assert len(values(two_partitions)) == 2 * RECORDS


def test_adopting_is_refused_while_the_other_group_has_members(two_partitions):
    two_partitions.write(*events(range(RECORDS)))
    worker = two_partitions.worker(GROUP__SESSION_TIMEOUT="6s", TRANSACTION__TIMEOUT="5s")
    two_partitions.await_lag_0()
    desk = Desk(
        two_partitions,
        **renamed(two_partitions),
        GROUP__SESSION_TIMEOUT="6s",
        TRANSACTION__TIMEOUT="5s",
    )
    refused = desk.type("offsets", "adopt", two_partitions.app, "--yes")
    assert (refused.exit_code, f"group {two_partitions.app} has members" in refused.stderr) == (
        3,
        True,
    )
    assert worker.terminate() == 0


@pytest.mark.parametrize(("start", "old"), [("earliest", 20), ("latest", 0)])
def test_where_an_adopted_group_has_no_offset_start_decides(two_partitions, start, old):
    two_partitions.write(*events(range(RECORDS)))
    client = Consumer(
        {"bootstrap.servers": two_partitions.bootstrap, "group.id": f"{two_partitions.app}-go"}
    )
    client.commit(offsets=[TopicPartition(two_partitions.source, 0, 20)], asynchronous=False)
    client.close()
    desk = Desk(two_partitions, INPUT__START=start)
    told = desk.type("offsets", "adopt", f"{two_partitions.app}-go", "--yes")
    assert "1 of 2 partitions have no offset, they begin at HAPAX_INPUT__START" in told.stdout
    assert committed(two_partitions.bootstrap, two_partitions.app, two_partitions.source) == {
        0: 20,
        1: None,
    }
    worker = two_partitions.run_to_end(INPUT__START=start)
    assert len(values(two_partitions)) == old, worker.text()


def test_names_that_are_no_other_group_are_refused_in_words(two_partitions):
    two_partitions.write(*events(range(2)))
    ran(two_partitions)
    desk = Desk(two_partitions)
    for name, code, words in (
        (two_partitions.app, 2, "is HAPAX_APP itself"),
        ("no-such-group", 1, "has no offset in"),
    ):
        done = desk.type("offsets", "adopt", name, "--yes")
        assert (done.exit_code, words in done.stderr) == (code, True), done.output


# -- Where HAPAX_INPUT__START=latest begins, over kills and with several members at once ---


latest = a_route(
    *(Given(b"old", partition=number % PARTITIONS) for number in range(PARTITIONS * OLD)),
    partitions=PARTITIONS,
    INPUT__START="latest",
)
"""A topic with old records in every partition, and no group that knows it."""


def new(name: bytes) -> list[Given]:
    return [Given(name, partition=number) for number in range(PARTITIONS)]


@pytest.mark.parametrize("delay_s", [0.0, 0.3])
def test_a_worker_killed_at_its_first_commit_processes_no_old_record_when_it_is_back(
    latest, delay_s
):
    worker = latest.worker()
    await_(lambda: any(each is not None for each in latest.committed().values()), 60, worker.text)
    if delay_s:
        latest.write(*new(b"before"))
        latest.await_outputs(1)
    worker.kill()
    assert latest.committed().keys() == set(range(PARTITIONS))
    assert None not in latest.committed().values()  # all at once, or none
    latest.write(*new(b"while away"))
    worker.start()
    latest.await_lag_0()
    found = [record.value for record in latest.outputs()]
    assert b"old" not in found
    assert found.count(b"while away") == PARTITIONS


def test_two_members_that_start_at_once_process_no_old_record(latest):
    workers = [latest.worker("w-0"), latest.worker("w-1")]
    await_(lambda: None not in latest.committed().values(), 60, lambda: workers[0].text()[-2000:])
    for worker in workers:
        await_(lambda w=worker: bool(w.lines("partitions_assigned")), 60, worker.text)  # type: ignore[misc]
    latest.write(*new(b"new"))
    latest.await_lag_0()
    assert [record.value for record in latest.outputs()] == [b"new"] * PARTITIONS
    assert all(worker.terminate() == 0 for worker in workers)


# -- From the classic group protocol to KIP-848, with the workers of one pipeline, under load.


MEMBERSHIPS = ("static", "dynamic")
CONSUMER = {"GROUP__PROTOCOL": "consumer", "GROUP__MEMBERSHIP": "dynamic"}
NAMES = ("w-0", "w-1")

flow = a_flow(**QUICK)


def group(flow: Flow) -> ConsumerGroupDescription:
    admin = AdminClient({"bootstrap.servers": flow.bootstrap})
    found: ConsumerGroupDescription = admin.describe_consumer_groups([flow.app])[flow.app].result()
    return found


def at_work(flow: Flow, name: str, **settings: str | None) -> WorkerProcess:
    worker = flow.worker(name, **settings)
    await_(lambda: bool(worker.lines("transaction_committed")), HANG_S, worker.text)
    return worker


@pytest.mark.parametrize("membership", MEMBERSHIPS)
def test_stopped_as_a_whole_a_group_moves_to_the_consumer_protocol_and_loses_nothing(
    flow, membership
):
    flow.feed_beside(500)
    former = [at_work(flow, name, GROUP__MEMBERSHIP=membership) for name in NAMES]
    # Both have joined a second time, for each other: cooperative-sticky sends its own data then,
    # and brokers do not take such members along.
    early = flow.worker("w-2", **CONSUMER)
    early.ends_with(3)
    assert "no process of HAPAX_GROUP__PROTOCOL=consumer can join them" in early.text()
    assert group(flow).type.name == "CLASSIC"
    assert [worker.terminate() for worker in former] == [0, 0]
    await_(lambda: not group(flow).members, HANG_S)
    for name in NAMES:
        at_work(flow, name, **CONSUMER)
    found = group(flow)
    assert (found.type.name, len(found.members)) == ("CONSUMER", 2)
    assert flow.finish().anomalies == {}
