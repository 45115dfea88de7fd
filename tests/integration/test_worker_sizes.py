"""Records and outputs around the limits of client, topic and message set, on a real broker.

The client's own default is 1,000,000 bytes, a topic's 1,048,588 with all that is around the
message. Whatever a broker took into the input has its effect; nothing of it stops a partition.
"""

import re
from functools import partial

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from hapax.core.records import Headers, Record
from tests.kit.night import Desk
from tests.kit.orders import told
from tests.kit.pipeline_under_test import PipelineUnderTest, header, source
from tests.kit.routes import a_route
from tests.kit.topics import Given

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


def test_headers_and_key_too_large_for_the_dead_letters_are_left_out_as_well(route):
    route.create(target={"max.message.bytes": "5000"}, dead_letters={"max.message.bytes": "5000"})
    headers: Headers = (("large", b"x" * 9_000), ("raise", b"1"))
    write(route, Given(b"v", b"k" * 20, headers), Given(b"v" * 7_000, b"k" * 6_000))
    route.run_to_end()
    _, dead = with_one_effect_each(route, 2)
    assert {(record.key, record.value) for record in dead.values()} == {(None, None)}
    told_left = re.compile(r"value=(\d+),key=(\d+),headers=(\d+),timestamp=\d+")
    found = [told_left.fullmatch(header(dead[at], "hapax-truncated")) for at in (0, 1)]
    assert [one and one.groups() for one in found] == [("1", "20", "9011"), ("7000", "6000", "0")]
    assert header(dead[0], "hapax-error").startswith("ValueError")
    assert header(dead[0], "hapax-app") == route.app
    assert "large" not in dict(dead[0].headers)


def test_a_replay_reads_what_a_dead_letter_of_last_resort_left_out(route, sandbox):
    route.create(dead_letters={"max.message.bytes": "20000"})
    bad: Headers = (("raise", b"1"), *ONE)
    write(route, *(Given(b"%d" % number * 30_000, b"k", bad) for number in range(2)), Given(b"c"))
    route.run_to_end()
    _, dead = with_one_effect_each(route, 3)
    assert {record.value for record in dead.values()} == {None}
    sandbox.delete_records(route.source, 0, 1)
    desk = Desk(route)
    replayed = desk.type("dead-letters", "replay", "--yes")
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
        producer.produce(
            route.target,
            b"x" * 400_000,
            partition=0,
            callback=partial(_note, errors),
        )
    producer.flush(20)
    if errors:
        raise KafkaException(errors[0])
