"""Records that wait in the order of their key, at the Source port of a real broker."""

import time
import uuid
from contextlib import ExitStack, closing, nullcontext

import pytest

from hapax.core.errors import BatchAbortedError
from hapax.core.headers import DONE, Retried
from hapax.core.ports import Batch
from hapax.core.retry_later import RetryTopic
from hapax.core.retry_line import RetryLine
from hapax.kafka.consume import line_source
from hapax.kafka.consume.line_source import KafkaLineSource
from hapax.kafka.properties import consumer_properties
from hapax.sandbox import Sandbox, SandboxTopic
from tests.kit.parts import MachineClock, Quiet, settings_of
from tests.kit.topics import Given, produce, produce_open
from tests.kit.waiting import await_

RECORDS_S = 60.0


class World:
    """One pipeline's topics of two partitions, and members of its group."""

    def __init__(self, sandbox: Sandbox, exits: ExitStack) -> None:
        self.bootstrap = sandbox.bootstrap_servers
        self.app = f"line-{uuid.uuid4().hex[:12]}"
        self.source, self.retry = f"{self.app}-in", f"{self.app}-retry"
        self._exits = exits
        sandbox.create_topics(SandboxTopic(self.source, 2), SandboxTopic(self.retry, 2))

    def waiting(self, offset: int, value: bytes, partition: int = 0, move: int = 1) -> Given:
        retried = Retried(
            of=f"{self.source}/{partition}/{offset}",
            timestamp=1,
            attempt=1,
            calls=1,
            move=move,
            until=1,
            due=1,
        )
        return Given(value, b"k", tuple(retried.encode()), partition)

    def done(self, offset: int, partition: int = 0) -> Given:
        of = f"{self.source}/{partition}/{offset}".encode()
        return Given(None, None, ((DONE, of),), partition)

    def member(self, name: str) -> KafkaLineSource:
        more = {
            "HAPAX_GROUP__MEMBERSHIP": "dynamic",
            "HAPAX_GROUP__PROTOCOL": "consumer",
            "HAPAX_INSTANCE": name,
            "HAPAX_RETRY__ORDER": "key",
            "HAPAX_RETRY__TOPIC": self.retry,
        }
        settings = settings_of(self.bootstrap, self.source, "out", self.app, **more)
        source = KafkaLineSource(
            consumer_properties(settings),
            settings.input.topics,
            line=RetryLine(RetryTopic(self.retry, frozenset({self.source}), by_key=True)),
            now_ms=lambda: int(time.time() * 1000),
            start="earliest",
            logger=Quiet(),
            clock=MachineClock(),
            watch=lambda _call: nullcontext(),
        )
        source.subscribe()
        self._exits.enter_context(closing(source))
        return source


@pytest.fixture
def world(sandbox):
    with ExitStack() as exits:
        yield World(sandbox, exits)


def taken(source: KafkaLineSource, count: int) -> list[Batch]:
    """Take until so many records have come."""
    found: list[Batch] = []
    deadline_s = time.monotonic() + RECORDS_S
    while sum(len(batch.records) for batch in found) < count:
        assert time.monotonic() < deadline_s, found
        try:
            batch = source.take(10, 0.05)
        except BatchAbortedError:  # a topic so new that its leader does not know it, for instance
            source.rewind(source.processed())
            continue
        if batch.records:
            found.append(batch)
    return found


def values(batches: list[Batch]) -> list[bytes | None]:
    return [record.value for batch in batches for record in batch.records]


def test_what_waits_comes_before_the_inputs_in_input_order_without_what_has_ended(world):
    again = world.waiting(1, b"one again", move=2)
    produce(world.bootstrap, world.source, *(Given(b"in", b"k", (), 0),) * 3)
    produce(
        world.bootstrap,
        world.retry,
        *(world.waiting(0, b"zero"), world.waiting(1, b"one"), world.waiting(2, b"two")),
        *(again, world.done(0)),
    )
    batches = taken(world.member("w"), 5)
    assert values(batches)[:2] == [b"one again", b"two"]
    assert values(batches)[2:] == [b"in"] * 3
    first = batches[0]
    assert first.first[(world.retry, 0)] == 2  # the lowest that waits


def test_inputs_are_held_while_a_transaction_of_before_is_open_in_their_retry_partition(
    world, monkeypatch
):
    produce(world.bootstrap, world.source, Given(b"held", b"k", (), 0), Given(b"free", b"k", (), 1))
    with produce_open(world.bootstrap, world.retry, world.waiting(0, b"waits")) as producer:
        source = world.member("w")
        assert values(taken(source, 1)) == [b"free"]
        monkeypatch.setattr(line_source, "HELD_TOLD_S", 0.5)
        ready_s = time.monotonic()
        while time.monotonic() < ready_s + 2:  # the last stable offset says that nothing waits
            assert source.take(10, 0.05).records == []
        told = [error for error in source.changes().errors if "is held" in error]
        assert told == [f"{world.source}/0 is held: what waits in {world.retry}/0 is not read in"]
        producer.commit_transaction(10)
    assert values(taken(source, 2)) == [b"waits", b"held"]


def test_a_batch_names_the_retry_partition_of_each_of_its_inputs(world):
    source = world.member("w")
    produce(world.bootstrap, world.source, Given(b"in", b"k", (), 1))
    (batch,) = taken(source, 1)
    assert batch.next == {**batch.next, (world.source, 1): 1, (world.retry, 1): 0}
    assert list(batch.first) == [(world.source, 1)]


def test_what_was_handed_out_comes_again_after_a_rewind(world):
    source = world.member("w")
    produce(world.bootstrap, world.retry, world.waiting(0, b"zero"), world.waiting(1, b"one"))
    batches = taken(source, 2)
    assert source.take(10, 0.05).records == []
    source.rewind(batches[0].first)
    assert values(taken(source, 2)) == [b"zero", b"one"]


def test_two_members_have_partitions_of_the_same_numbers_and_each_what_waits_there(world):
    members = [world.member("v"), world.member("w")]

    def shared() -> bool:
        for member in members:
            member.take(10, 0.05)
        return all(len(member.assignment()) == 2 for member in members)

    await_(shared, RECORDS_S)
    for member in members:
        assert len({number for _topic, number in member.assignment()}) == 1
        (number,) = {number for _topic, number in member.assignment()}
        produce(world.bootstrap, world.retry, world.waiting(0, b"w%d" % number, number))
        produce(world.bootstrap, world.source, Given(b"i%d" % number, b"k", (), number))
        assert set(values(taken(member, 2))) == {b"w%d" % number, b"i%d" % number}


def test_an_input_is_delivered_when_neither_the_engine_nor_its_retry_partition_holds_it(world):
    produce(world.bootstrap, world.source, Given(b"held", b"k", (), 0), Given(b"free", b"k", (), 1))
    with produce_open(world.bootstrap, world.retry, world.waiting(0, b"waits")) as producer:
        source = world.member("w")
        assert values(taken(source, 1)) == [b"free"]
        source.hold((world.source, 0), held=True)
        source.hold((world.source, 0), held=False)
        assert [source.take(10, 0.05).records for _ in range(20)] == [[]] * 20, "not read in"
        source.hold((world.source, 0), held=True)
        producer.commit_transaction(10)
    assert values(taken(source, 1)) == [b"waits"]
    assert [source.take(10, 0.05).records for _ in range(20)] == [[]] * 20, "the engine holds it"
    source.hold((world.source, 0), held=False)
    assert values(taken(source, 1)) == [b"held"]
