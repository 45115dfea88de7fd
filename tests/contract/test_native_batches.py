"""Native batches on a broker: sent in transactions, over rebalances, with routes that were lost."""

import time
from collections import Counter
from contextlib import closing, nullcontext
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from hapax.core.errors import BatchAbortedError
from hapax.core.record_path import Batch
from hapax.core.records import Output
from hapax.kafka.consume.decode import ROUTES_S
from hapax.kafka.consume.source import KafkaSource
from hapax.kafka.native import UNCHANGED, NativeBatch, record_path
from hapax.kafka.properties import consumer_properties
from hapax.sandbox import Sandbox
from tests.kit.native import prepared
from tests.kit.parts import Quiet, settings_of
from tests.kit.rulebook_kafka import KafkaTopics
from tests.kit.topics import Given, produce
from tests.kit.worlds import BYTES_MAX, KafkaWorld, consumer_of, joined, take

# Members of a group that take records natively and commit what they took, in one thread.


SPREAD = 3
"""Records that are written to each partition at once."""


class Group(KafkaTopics):
    """A group of the classic protocol with an assignor, or of the consumer protocol.

    taken    how often each value was in a batch that was committed
    foreign  partitions of batches whose member did not own them
    native   how many records came natively, of all that came (total)
    """

    def __init__(self, sandbox: Sandbox, kind: str) -> None:
        super().__init__(sandbox)
        self._sandbox, self._kind = sandbox, kind
        self.members: list[KafkaSource] = []
        self.taken: Counter[bytes | None] = Counter()
        self.foreign: list[object] = []
        self.native = self.total = 0
        self._written = 0

    def join(self) -> KafkaSource:
        """Let one more member in; partitions come when all members are served."""
        protocol = "consumer" if self._kind == "consumer" else "classic"
        settings = settings_of(
            self._bootstrap,
            self.topic,
            self.target,
            self._app,
            HAPAX_FAST="on",
            HAPAX_INSTANCE=f"m{len(self.members)}",
            HAPAX_GROUP__MEMBERSHIP="dynamic",
            HAPAX_GROUP__PROTOCOL=protocol,
            HAPAX_DEDUP__ID="key",
        )
        properties = consumer_properties(settings)
        if protocol == "classic":
            properties["partition.assignment.strategy"] = self._kind
        member = KafkaSource(
            properties,
            [self.topic],
            start="earliest",
            logger=Quiet(),
            clock=time,
            watch=lambda _call: nullcontext(),
            native=record_path(settings).path,
        )
        member.subscribe()
        self.members.append(member)
        return member

    def leave(self) -> None:
        member = self.members.pop(0)
        member.take(7, 0.0)
        member.close()

    def write_numbers(self) -> None:
        numbers = range(self._written, self._written + 2 * SPREAD)
        self._written += 2 * SPREAD
        given = [Given(b"%d" % number, b"key", partition=number % 2) for number in numbers]
        produce(self._bootstrap, self.topic, *given)

    def serve(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            for member in self.members:
                self._step(member)

    def _step(self, member: KafkaSource) -> None:
        batch = member.take(5, 0.02)
        changes = member.changes()
        if not batch.next:
            return
        self.foreign += [where for where in batch.first if where not in member.assignment()]
        try:
            member.commit(member.offset_commit(batch.next))
        except BatchAbortedError:  # a rebalance was in between: who owns it takes it again
            if not changes.revoked:
                member.rewind(batch.first)
            return
        self._count(batch)

    def _count(self, batch: Batch) -> None:
        self.total += len(batch.records)
        if isinstance(batch, NativeBatch):
            self.native += len(batch.records)
        self.taken.update(record.value for record in batch.records)

    def play(self, rounds: int) -> None:
        """Let members come and go while records are written, then wait for all records."""
        self.join()
        for number in range(rounds):
            self.write_numbers()
            if number % 2 == 0:
                self.join()
            else:
                self.leave()
            self.serve(1.5)
            self.write_numbers()
            self.serve(1.0)
        until_s = time.monotonic() + 60
        while self.missing() and time.monotonic() < until_s:
            self.serve(0.2)

    def missing(self) -> list[int]:
        return [n for n in range(self._written) if not self.taken[b"%d" % n]]

    def doubled(self) -> list[bytes | None]:
        return [value for value, count in self.taken.items() if count > 1]

    def close(self) -> None:
        for member in self.members:
            member.close()
        super().close()


pytest.importorskip("hapax_fast")
HUNDRED = [b"%d" % number for number in range(100)]


@pytest.fixture
def native(sandbox):
    """A world whose records take the native path, and whose producer's queue is tiny."""
    world = KafkaWorld(sandbox, "on", **{"queue.buffering.max.messages": 7})
    yield world
    world.close()


def taken(world: KafkaWorld, count: int) -> NativeBatch:
    for _ in range(10):
        batches = [each for each in take(world, count, records_max=count) if each.records]
        if len(batches) == 1:
            (batch,) = batches
            assert isinstance(batch, NativeBatch)
            return batch
        world.source.rewind(batches[0].first)  # they came in parts
    raise AssertionError(f"{count} records never came at once")


def send(world: KafkaWorld, batch: NativeBatch, results: list[Any]) -> None:
    world.transaction.begin()
    world.transaction.send(prepared(batch.records, results, world.target))


def commit(world: KafkaWorld, batch: Batch) -> None:
    world.transaction.send_offsets(batch.next)
    world.transaction.commit()


def ready(world: KafkaWorld, *values: bytes) -> NativeBatch:
    world.write(*values)
    joined(world)
    world.transaction.open()
    return taken(world, len(values))


def test_outputs_and_progress_become_visible_together_with_a_queue_that_is_full_all_the_time(
    native,
):
    batch = ready(native, *HUNDRED)
    send(native, batch, [UNCHANGED, (), None, (Output(b"new"),), *[UNCHANGED] * 96])
    assert native.outputs() == []
    commit(native, batch)
    outputs = native.outputs()
    assert [each.value for each in outputs] == [b"0", b"new", *HUNDRED[4:]]
    sources = [dict(each.headers)["hapax-source"] for each in outputs]
    numbers = [0, *range(3, 100)]
    assert sources == [f"{native.topic}/0/{number}".encode() for number in numbers]
    assert {dict(each.headers)["hapax-id"] for each in outputs} == {b"key"}
    assert native.committed() == {(native.topic, 0): 100}


@pytest.mark.parametrize("too_large", [False, True])
def test_what_was_aborted_is_taken_and_sent_again_and_nothing_of_it_is_visible(native, too_large):
    batch = ready(native, *HUNDRED)
    if too_large:
        large: list[Any] = [UNCHANGED] * 100
        large[60] = (Output(b"x" * (BYTES_MAX + 1)),)
        with pytest.raises(BatchAbortedError) as caught:
            send(native, batch, large)
        assert set(caught.value.refused) == {60}
        assert batch.coordinates(60) == (native.topic, 0, 60)
    else:
        send(native, batch, [(Output(b"never"),)] * 100)
        with pytest.raises(BatchAbortedError):
            native.transaction.send_offsets({(native.topic, 77): 1})
    native.source.rewind(batch.first)
    again = taken(native, 100)
    send(native, again, [UNCHANGED] * 100)
    commit(native, again)
    assert [each.value for each in native.outputs()] == HUNDRED


@pytest.mark.parametrize("is_looking", [True, False])
def test_a_route_that_was_reset_is_found_and_its_records_arrive(native, monkeypatch, *, is_looking):
    """The client resets it where a partition is unassigned and assigned again.

    A look that comes before the records mends it with nothing to tell: news are not compared.
    """
    ready(native, *HUNDRED)
    intake = consumer_of(native).intake
    assert intake is not None
    if not is_looking:  # the control
        monkeypatch.setattr(intake, "_look", lambda: None)
    client = consumer_of(native).client
    where = TopicPartition(native.topic, 0, 100)
    client.incremental_unassign([where])
    client.incremental_assign([where])
    native.write(*HUNDRED)
    began_s = time.monotonic()
    if is_looking:
        batches = take(native, 100)
        assert [record.value for each in batches for record in each.records] == HUNDRED
        assert time.monotonic() - began_s < 5 * ROUTES_S
    while not is_looking and time.monotonic() < began_s + 5 * ROUTES_S:
        assert list(native.source.take(100, 0.1).records) == []


class Refusing:
    """The client, which refuses to seek as one does whose fetching has not started."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def seek(self, _where: object) -> None:
        raise KafkaException(KafkaError(KafkaError._STATE))


def test_a_rewind_that_takes_the_partition_anew_reads_on_there(native):
    ready(native, *HUNDRED)
    consumer = consumer_of(native)
    client: Any = consumer.client
    consumer.client = Refusing(client)  # type: ignore[assignment]
    native.source.rewind({(native.topic, 0): 40})
    consumer.client = client
    batches = take(native, 60)
    assert [record.value for each in batches for record in each.records] == HUNDRED[40:]


def test_a_member_that_was_fenced_goes_on_with_a_new_client(native):
    batch = ready(native, *HUNDRED)
    source: Any = native.source
    source.reopen()
    with pytest.raises(RuntimeError, match="given back"):
        batch.records[0]
    joined_again = take(native, 100)
    assert [record.value for each in joined_again for record in each.records] == HUNDRED


def test_a_source_that_closes_with_batches_in_hand_leaves_nothing_held(sandbox):
    hapax_fast = pytest.importorskip("hapax_fast")
    before = hapax_fast.held()
    world = KafkaWorld(sandbox, "on")
    batch = ready(world, *HUNDRED)
    began_s = time.monotonic()
    world.close()
    assert time.monotonic() - began_s < 20
    assert hapax_fast.held() <= before
    assert len(batch.records) == 100  # it is told by its size, never as one without records


@pytest.mark.parametrize("kind", ["cooperative-sticky", "consumer"])
def test_members_that_come_and_go_miss_nothing_and_hand_out_nothing_of_others(sandbox, kind):
    with closing(Group(sandbox, kind)) as group:
        group.play(rounds=6)
        assert group.foreign == []
        assert group.missing() == []
        assert group.doubled() == []
        assert group.native > group.total / 2, "most records took the reference"


def test_a_batch_in_hand_outlives_a_rebalance(sandbox):
    with closing(Group(sandbox, "cooperative-sticky")) as group:
        older = group.join()
        batch = Batch([], {}, {})
        # What comes while the partitions are still being placed is taken by the Python path.
        while not isinstance(batch, NativeBatch):
            group.write_numbers()
            batch = older.take(100, 0.1)
        expected = [record.value for record in batch.records]
        newer = group.join()
        while not newer.assignment():
            for member in (older, newer):
                member.attend(0.05)
        assert isinstance(batch, NativeBatch)
        assert [record.value for record in batch.records] == expected
