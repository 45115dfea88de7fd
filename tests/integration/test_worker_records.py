"""Records of every shape and size, and outputs that brokers refuse: one effect each."""

import json
import os
import sys
from collections import Counter
from functools import partial

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from hapax.core.records import Headers, Record
from tests.kit.commands import run_captured
from tests.kit.managed_process import WorkerProcess
from tests.kit.night import Desk
from tests.kit.orders import told
from tests.kit.pipeline_under_test import Done, PipelineUnderTest, header, source, values
from tests.kit.probes import ask, free_port, ready
from tests.kit.routes import a_route
from tests.kit.shapes import LARGE, NOON_MS, ODD, SHAPES
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import Given
from tests.kit.waiting import await_

# -- Records of every shape, ids of every kind, and outputs that brokers refuse: one effect each.


# -- shapes -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shapes(sandbox, tmp_path_factory):
    route = PipelineUnderTest(sandbox, tmp_path_factory.mktemp("shapes"))
    route.create()
    route.write(*SHAPES.values())
    yield Done(route, route.run_to_end())
    route.close()


def only(done: Done, shape: str) -> Record:
    (record,) = done.outputs_of(list(SHAPES).index(shape))
    return record


def test_all_shapes_have_their_effects_in_order_and_without_id_they_are_counted(shapes):
    sources = [source(record) for record in shapes.route.outputs()]
    silent = [list(SHAPES).index(name) for name in ("filtered", "poison")]
    assert sources == [number for number in [0, 0, *range(len(SHAPES))] if number not in silent]
    assert shapes.route.committed() == {0: len(SHAPES)}
    assert shapes.sum("records") == shapes.sum("without_id") == len(SHAPES)
    assert (shapes.sum("filtered"), shapes.sum("dead_letters")) == (1, 1)


def test_several_outputs_of_one_record_are_numbered(shapes):
    parts = shapes.outputs_of(0)
    assert values(parts) == [b"a", b"b", b"c"]
    assert [header(part, "hapax-part") for part in parts] == ["1/3", "2/3", "3/3"]
    assert {header(part, "hapax-id") for part in parts} == {f"{shapes.route.source}/0/0"}


@pytest.mark.parametrize(
    ("shape", "key", "value"),
    [
        ("tombstone", b"key", None),
        ("no key", None, b"no key"),
        ("empty key", b"", b"empty key"),
        ("empty value", b"key", b""),
        ("large", b"large", LARGE),
        ("to tombstone", b"key", None),
        ("new key", b"other", b"new key"),
        ("key taken away", None, b"keyless"),
    ],
)
def test_keys_and_values_are_what_they_were_or_what_the_transform_says(shapes, shape, key, value):
    record = only(shapes, shape)
    assert (record.key, record.value) == (key, value)


def test_headers_pass_through_as_they_are_but_for_those_of_a_pipeline_before(shapes):
    record = only(shapes, "odd headers")
    here = f"{shapes.route.source}/0/{list(SHAPES).index('odd headers')}".encode()
    assert record.headers == (*ODD[:6], ("hapax-id", here), ("hapax-source", here))


def test_timestamps_are_kept_unless_the_transform_sets_them(shapes):
    assert only(shapes, "old").timestamp_ms == NOON_MS
    assert only(shapes, "new time").timestamp_ms == NOON_MS + 1


@pytest.mark.row("T3")
def test_a_dead_letter_is_its_record_and_says_why(shapes):
    (dead,) = shapes.route.dead()
    assert (dead.key, dead.value, dead.timestamp_ms) == (b"key", b"ill", NOON_MS)
    here = f"{shapes.route.source}/0/{list(SHAPES).index('poison')}".encode()
    assert dead.headers == (
        ("raise", b""),
        *ODD[:6],
        ("hapax-id", here),
        ("hapax-source", here),
        ("hapax-error", b"ValueError: the record says so"),
        ("hapax-attempts", b"3"),
        ("hapax-app", shapes.route.app.encode()),
    )


# -- outputs of a record that are too many ------------------------------------------------


@pytest.mark.parametrize("fast", ["off", "auto"])
def test_a_record_of_too_many_outputs_is_a_dead_letter_alone(route_of, fast):
    route = route_of(CALL__OUTPUT_BYTES_MAX="4KiB", FAST=fast)
    many = Given(b"many", headers=(told(*[{"value": "one"}] * 6),))
    route.write(many, Given(b"before"), many, Given(b"after"))
    route.run_to_end()
    reasons = [header(one, "hapax-error") for one in route.dead()]
    assert [reason.partition(":")[0] for reason in reasons] == ["OutputsTooLarge"] * 2
    assert values(route.outputs()) == [b"before", b"after"]
    assert route.committed() == {0: 4}


@pytest.mark.parametrize(("order", "lost"), [({"partition": 77}, []), ({"size": 30_000}, [21])])
def test_at_most_once_sends_nothing_a_second_time_and_says_what_it_lost(route_of, order, lost):
    """A refused message had its batch sent again, with all that brokers had taken of it."""
    route = route_of(2, config={"target": {"max.message.bytes": "20000"}}, GUARANTEE="at_most_once")
    sound = [Given(b"%d" % number, partition=1) for number in range(20)]
    route.write(*sound[:10], Given(b"bad", headers=(told(order),), partition=1), *sound[10:])
    worker = route.run_to_end()
    passed = values(route.outputs())
    assert len(passed) == len(set(passed)) <= len(sound)
    assert [line["messages"] for line in worker.lines("outputs_lost")] == lost
    assert (len(passed), values(route.dead())) == (20, [b"bad"]) or lost
    assert route.committed()[1] == 21


@pytest.mark.parametrize("fast", ["off", "auto"])
@pytest.mark.parametrize("at_once", ["1", "4"])
def test_outputs_of_many_records_take_no_more_memory_than_those_of_few(route_of, at_once, fast):
    """All of them at once took 860 MiB, and a limit of 640 MiB killed the process at each start."""
    route = route_of(FAST=fast, CALL__CONCURRENCY=at_once)
    route.write(*[Given(b"%d" % at, headers=(told({"size": 900_000}),)) for at in range(450)])
    worker = route.worker()
    route.await_lag_0()
    assert worker.peak_bytes() < 450 << 20
    assert len(route.outputs()) == 450


# -- Records and outputs around the limits of client, topic and message set, on a real broker.
# The client's own default is 1,000,000 bytes, a topic's 1,048,588 with all that is around the
# message. Whatever a broker took into the input has its effect; nothing of it stops a partition.


BROKER_BYTES = 1_048_588
AROUND = 72
"""What a set and a record without key and headers have around the value."""

SIZES = (
    *(999_900, 999_980, 1_000_000, 1_000_020, 1_024_000),
    *(BROKER_BYTES - AROUND - more for more in (600, 400, 250, 180, 120, 60, 1, 0)),
)

ONE: Headers = (("h", b"x" * 300),)
MANY: Headers = tuple((f"header {number}", b"y" * 90) for number in range(100))


def write(route: PipelineUnderTest, *records: Given) -> list[int]:
    """Write each as a sender of any client could; return the indexes of those taken."""
    producer = Producer(
        {"bootstrap.servers": route.bootstrap, "message.max.bytes": 10_000_000, "log_level": 0}
    )
    taken: list[int] = []
    for index, record in enumerate(records):
        refused: list[KafkaError] = []
        producer.produce(
            route.source,
            record.value,
            record.key,
            0,
            partial(_note, refused),
            headers=list(record.headers),
        )
        assert producer.flush(20) == 0
        if not refused:
            taken.append(index)
    return taken


def _note(refused: list[KafkaError], error: KafkaError | None, _message: object) -> None:
    if error is not None:
        refused.append(error)


route = a_route(created=False)


def with_one_effect_each(
    route: PipelineUnderTest, count: int
) -> tuple[dict[int, Record], dict[int, Record]]:
    outputs = {source(record): record for record in route.outputs()}
    dead = {source(record): record for record in route.dead()}
    assert not outputs.keys() & dead.keys()
    assert sorted([*outputs, *dead]) == list(range(count))
    assert len(route.outputs()) + len(route.dead()) == count
    assert route.committed() == {0: count}
    return outputs, dead


def test_every_size_that_the_broker_took_has_its_effect_around_both_limits(route):
    route.create()
    given = [
        Given(
            b"v" * (size - sum(len(name) + len(value or b"") + 4 for name, value in headers)),
            headers=headers,
        )
        for headers in ((), ONE, MANY)
        for size in SIZES
    ]
    sizes = [len(given[index].value or b"") for index in write(route, *given)]
    assert len(sizes) >= 3 * len(SIZES) - 6, "most of these sizes are legal"
    worker = route.run_to_end()  # some forty batches are aborted: 15 s alone, 50 s in company
    outputs, dead = with_one_effect_each(route, len(sizes))
    assert all(len(record.value or b"") == sizes[at] for at, record in outputs.items())
    assert len(outputs) > len(sizes) / 2
    assert dead, "with its headers the largest is larger than the output topic takes"
    cut = [at for at, record in dead.items() if record.value is None]
    for at in cut:
        assert header(dead[at], "hapax-truncated") == f"value={sizes[at]}"
        assert header(dead[at], "hapax-error").startswith("Refused: MSG_SIZE_TOO_LARGE")
    assert cut, "its dead letter is larger still"
    assert all(len(dead[at].value or b"") == sizes[at] for at in dead.keys() - set(cut))
    assert "dead_letter_limit" not in worker.text()


def test_an_output_too_large_for_its_topic_is_a_whole_dead_letter_where_that_fits(route):
    route.create(target={"max.message.bytes": "20000"}, dead_letters={"max.message.bytes": "60000"})
    write(route, Given(b"s" * 10), Given(b"m" * 30_000), Given(b"l" * 90_000), Given(b"s" * 11))
    route.run_to_end()
    outputs, dead = with_one_effect_each(route, 4)
    assert sorted(outputs) == [0, 3]
    assert dead[1].value == b"m" * 30_000
    assert (dead[2].value, header(dead[2], "hapax-truncated")) == (None, "value=90000")


def test_a_replay_reads_what_a_dead_letter_of_last_resort_left_out(route, sandbox):
    route.create(dead_letters={"max.message.bytes": "20000"})
    bad: Headers = (("raise", b"1"), *ONE)
    write(route, *(Given(b"%d" % number * 30_000, b"k", bad) for number in range(2)), Given(b"c"))
    route.run_to_end()
    _, dead = with_one_effect_each(route, 3)
    assert {record.value for record in dead.values()} == {None}
    sandbox.delete_records(route.source, 0, 1)
    replayed = Desk(route).type("dead-letters", "replay", "--yes")
    assert replayed.exit_code == 0, replayed.output
    assert "1 replayed" in replayed.output
    assert "1 left alone: written without the value" in replayed.output
    route.run_to_end(TRANSFORM=None)
    again = [record for record in route.outputs() if source(record) > 2]
    assert [(record.key, record.value) for record in again] == [(b"k", b"1" * 30_000)]
    assert dict(again[0].headers)["h"] == ONE[0][1]


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_outputs_that_fit_singly_and_not_together_go_through_and_nobody_is_blamed(route, guarantee):
    route.create(target={"max.message.bytes": "450000"})
    six = told(*[{"value": str(number), "size": 400_000} for number in range(6)])
    write(route, Given(b"before"), Given(b"six", headers=(six,)), Given(b"after"))
    worker = route.run_to_end(GUARANTEE=guarantee)
    effects = [source(record) for record in route.outputs()]
    if guarantee == "exactly_once":
        assert effects == [0, *[1] * 6, 2]
    assert (set(effects), effects.count(1) >= 6) == ({0, 1, 2}, True)
    assert route.dead() == []
    assert worker.text().count("batch_aborted") <= 2
    with pytest.raises(KafkaException):  # the control: they do not fit into one set
        _send_together(route)


def _send_together(route: PipelineUnderTest) -> None:
    producer = Producer(
        {
            "bootstrap.servers": route.bootstrap,
            "linger.ms": 200,
            "batch.size": 1 << 20,
            "message.max.bytes": 10_000_000,
            "log_level": 0,
        }
    )
    errors: list[KafkaError] = []
    for _ in range(2):
        producer.produce(route.target, b"x" * 400_000, partition=0, callback=partial(_note, errors))
    producer.flush(20)
    if errors:
        raise KafkaException(errors[0])


# -- A record whose response is larger than the client takes: its partition is held and named.


TOO_LARGE = 3_000_000
SMALL_CLIENT = json.dumps({"receive.message.max.bytes": 2_000_000, "fetch.max.bytes": 1_000_000})
TAKES_LARGE = {"max.message.bytes": "4000000"}
uncreated = a_route(created=False, partitions=2)


def filled(route: PipelineUnderTest, first: int) -> None:
    """Write a large record at this offset of partition 0, and small ones around it."""
    route.create(source=TAKES_LARGE, target=TAKES_LARGE)
    producer = Producer({"bootstrap.servers": route.bootstrap, "message.max.bytes": 4_000_000})
    for number in range(first):
        producer.produce(route.source, b"before %d" % number, partition=0)
    producer.flush(30)
    producer.produce(route.source, os.urandom(TOO_LARGE), partition=0)
    producer.flush(30)
    producer.produce(route.source, b"after", partition=0)
    producer.produce(route.source, b"beside", partition=1)
    assert producer.flush(30) == 0


def found_by_doctor(route: PipelineUnderTest) -> dict[str, str]:
    words = [sys.executable, "-m", "hapax", "doctor", "--json"]
    done = run_captured(words, env=route.environment(KAFKA__PROPERTIES=SMALL_CLIENT))
    findings = json.loads(done.stdout)["findings"]
    return {one["check"]: one["saw"] for one in findings if one["verdict"] == "FAIL"}


@pytest.mark.parametrize(
    ("kind", "first"), [(WorkerProcess, 1), (WorkerProcess, 0), (SparkProcess, 1)]
)
def test_a_record_larger_than_the_client_takes_holds_its_partition_alone_and_is_named(
    uncreated: PipelineUnderTest, kind: type[WorkerProcess], first: int
):
    filled(uncreated, first)
    port = free_port()
    worker = uncreated.start(
        kind, "w-0", TRANSFORM=None, TELEMETRY__PORT=str(port), KAFKA__PROPERTIES=SMALL_CLIENT
    )
    await_(lambda: bool(worker.lines("partition_stuck")), 60, worker.text)
    [line] = worker.lines("partition_stuck")
    assert (line["partition"], line["offset"]) == (f"{uncreated.source}/0", first)
    assert "receive.message.max.bytes=2000000" in str(line["reason"])
    assert TOO_LARGE < int(str(line["reason"]).split(" bytes")[0].split()[-1]) < TOO_LARGE + 1000

    is_ready, reasons = ready(port)
    assert not is_ready
    assert f"{uncreated.source}/0 is stuck: the set at offset {first} cannot be read" in str(
        reasons
    )
    _, metrics = ask(port, "/metrics")
    labels = f'{{partition="0",topic="{uncreated.source}"}}'
    assert f"hapax_partition_stuck_offset{labels} {first:.1f}" in metrics

    uncreated.write(Given(b"late", partition=1))
    uncreated.await_outputs(first + 2)
    values = {record.value for record in uncreated.outputs()}
    assert {b"beside", b"late"} <= values
    assert b"after" not in values
    if kind is WorkerProcess and first:
        found = found_by_doctor(uncreated)
        assert "receive.message.max.bytes=2000000" in found["fetch-size"]
        assert "receive.message.max.bytes=2000000" in found["undecodable"]
    assert worker.terminate() == 0


def test_it_is_passed_by_a_larger_property_or_by_hand(uncreated: PipelineUnderTest):
    filled(uncreated, 1)
    worker = uncreated.worker(TRANSFORM=None, KAFKA__PROPERTIES=SMALL_CLIENT)
    await_(lambda: bool(worker.lines("partition_stuck")), 60, worker.text)
    uncreated.await_outputs(2)
    assert worker.terminate() == 0
    desk = Desk(uncreated, KAFKA__PROPERTIES=SMALL_CLIENT)
    (row,) = [one for one in desk.ask("offsets")["partitions"] if one["partition"] == 0]
    assert (row["stuck"]["offset"], row["committed"]) == (1, 1)
    desk.ask("offsets", "skip", f"{uncreated.source}/0/1", "--dead-letter", "--yes")
    [dead] = uncreated.dead()
    why = dict(dead.headers)["hapax-error"]
    assert why is not None
    assert b"receive.message.max.bytes=2000000" in why

    large = Producer({"bootstrap.servers": uncreated.bootstrap, "message.max.bytes": 4_000_000})
    large.produce(uncreated.source, os.urandom(TOO_LARGE), partition=1)
    assert large.flush(30) == 0
    uncreated.run_to_end(TRANSFORM=None)
    sizes = sorted(len(record.value or b"") for record in uncreated.outputs())
    assert sizes == [5, 6, 8, TOO_LARGE]


# -- Each partitioner puts records where its name says, and murmur2 where Java does --------

HASHES = {
    b"": 275646681,
    b"\x00\xff": -190448095,
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""What murmur2 with Kafka's seed makes of keys, as Kafka's own tests have it of all but two."""


def test_every_partitioner_puts_keys_where_its_name_says(sandbox, tmp_path):
    keys = [*HASHES, *(b"key-%d" % number for number in range(32))]
    routes = {}
    for partitioner in ("murmur2", "consistent_random", "round_robin", "random"):
        route = PipelineUnderTest(sandbox, tmp_path, partitions=4, OUTPUT__PARTITIONER=partitioner)
        route.create()
        routes[partitioner] = route
        route.write(*(Given(b"with key", key, partition=0) for key in keys * 2))
        route.write(*(Given(b"without", partition=0) for _ in range(40)))
        route.worker(STOP_AFTER__RECORDS="120")
    places = {}
    for partitioner, route in routes.items():
        route.await_outputs(120)
        route.close()
        places[partitioner] = [(record.key, record.partition) for record in route.outputs()]
        assert Counter(key for key, _ in places[partitioner]) == Counter([*keys * 2, *[None] * 40])
    keyed = {
        name: [place for place in found if place[0] is not None] for name, found in places.items()
    }
    java = {(key, (value & 0x7FFFFFFF) % 4) for key, value in HASHES.items()}
    assert {place for place in keyed["murmur2"] if place[0] in HASHES} == java
    assert len(set(keyed["murmur2"])) == len(keys)
    by_key = dict(keyed["consistent_random"])
    # librdkafka's consistent_random takes an empty key for none.
    assert all(by_key[key] == partition for key, partition in keyed["consistent_random"] if key)
    assert set(Counter(partition for _, partition in places["round_robin"]).values()) == {30}
    assert {partition for _, partition in places["random"]} == {0, 1, 2, 3}
