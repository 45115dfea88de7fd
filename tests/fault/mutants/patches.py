"""What each mutant changes in the service, at its start."""

import struct
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from hapax.claims.redis import RedisClaims
from hapax.core.errors import BatchAbortedError, ProducerDeadError
from hapax.core.offset_commit import OffsetCommit
from hapax.core.ports import Asked
from hapax.core.record_path import ClaimRequest, Outputs
from hapax.core.records import Coordinates
from hapax.kafka import properties as kafka_clients
from hapax.kafka.consume.client import parse_metadata
from hapax.kafka.consume.positions import TopicIdentity
from hapax.kafka.consume.source import KafkaSource
from hapax.kafka.produce.producer import Outbox
from hapax.kafka.produce.transaction import CALL_TIMEOUT_S, KafkaTransaction
from hapax.testing.claims import AskedBefore
from hapax.wiring import builders as parts
from tests.kit import mutants
from tests.kit.mutants import Patch, in_place_of

# -- Mutants of what the service decides: progress, rewinds, fences, claims ----------------


def no_rewind(patch: Patch) -> None:
    """Go on behind a batch that was aborted."""
    mutants.no_rewind(patch)


def no_fence_on_doubt(patch: Patch) -> None:
    """Keep the producer although a request of it may still be on its way."""
    begin = KafkaTransaction.begin

    def careless(self: KafkaTransaction) -> None:
        self.doubts = []
        begin(self)

    mutants.no_fence_on_doubt(patch)
    patch(KafkaTransaction, "begin", careless)


def progress_one_too_far(patch: Patch) -> None:
    """Commit the offset behind the next record."""
    mutants.progress_by(1, patch)


def progress_one_too_short(patch: Patch) -> None:
    """Commit the offset of the last record, not the one behind it."""
    mutants.progress_by(-1, patch)


def claim_then_drop(patch: Patch) -> None:
    """Claim as ``SET NX`` does: an id that is there already is a duplicate, whoever owns it."""

    def ask(self: RedisClaims, wanted: ClaimRequest) -> Asked:
        pipeline: Any = self._redis.pipeline(transaction=False)
        for each in wanted.ids:
            pipeline.set(self._store.base + b":" + each, 1, nx=True)
        known = [index for index, new in enumerate(pipeline.execute()) if not new]
        return AskedBefore({index: Coordinates("", -1, -1) for index in known})

    patch(RedisClaims, "ask", ask)


# -- A mutant that commits batch n while n + 1 is under way, and lets neither wait for the other.


@in_place_of(parts, "transaction")
def two_transactions_without_gate(transaction: Any, *around: Any) -> Any:
    """Two producers take turns; a commit that fails is found out too late."""
    lanes: list[Any] = [transaction(*around) for _ in range(2)]
    for number, lane in enumerate(lanes):
        properties: Any = lane._properties
        lane._properties = properties | {
            "transactional.id": f"{properties['transactional.id']}-lane-{number}"
        }
    return _TakingTurns(lanes)


class _TakingTurns:
    """A Transaction whose commit goes on beside the next batch."""

    def __init__(self, lanes: list[Any]) -> None:
        self._lanes: list[KafkaTransaction] = lanes
        self._commits: list[threading.Thread | None] = [None, None]
        self._turn = 0

    @property
    def doubts(self) -> Sequence[str]:
        return self._lane.doubts

    one_by_one = True

    @property
    def age_s(self) -> float:
        return self._lane.age_s

    @property
    def _lane(self) -> KafkaTransaction:
        return self._lanes[self._turn]

    def open(self) -> Any:
        return [lane.open() for lane in self._lanes][-1]

    def begin(self) -> None:
        self._turn = 1 - self._turn
        pending = self._commits[self._turn]
        if pending is not None:
            pending.join()
        self._lane.begin()

    def send(self, messages: Outputs) -> None:
        self._lane.send(messages)

    def send_offsets(self, commit: OffsetCommit) -> None:
        self._lane.send_offsets(commit)

    def abort(self) -> None:
        self._lane.abort()

    def commit(self) -> None:
        commit = threading.Thread(target=_commit, args=(self._lane,), daemon=True)
        self._commits[self._turn] = commit
        commit.start()

    def close(self) -> None:
        for commit in self._commits:
            if commit is not None:
                commit.join()
        for lane in self._lanes:
            lane.close()


def _commit(lane: KafkaTransaction) -> None:
    with suppress(BatchAbortedError, ProducerDeadError):
        lane.commit()


# -- Mutants of the talk with Kafka: transactions, group metadata, positions ---------------


def offsets_outside_the_transaction(patch: Patch) -> None:
    """Commit the offsets through the consumer, just before the transaction."""

    def offset_commit(
        self: KafkaSource, progress: Mapping[tuple[str, int], int], marks: object = None
    ) -> OffsetCommit:
        commit = OffsetCommit([self.offset(at, offset) for at, offset in progress.items()], b"")
        self.commit(commit)
        return commit

    patch(KafkaSource, "offset_commit", offset_commit)
    patch(KafkaTransaction, "send_offsets", lambda _self, _commit: None)


@in_place_of(KafkaSource, "member")
def no_group_metadata(_real: Any, self: KafkaSource) -> bytes:
    """Name the group, but neither member nor generation, as before KIP-447."""
    return b"CGMDv2:" + struct.pack("=i", -1) + self._consumer.group.encode() + b"\0\0\1"


def generation_minus_one(patch: Patch) -> None:
    """Read the group metadata once, before the group has given any."""
    subscribe = KafkaSource.subscribe
    early: list[bytes] = []

    def noting(self: KafkaSource) -> None:
        early.append(bytes(self._consumer.client.consumer_group_metadata()))
        subscribe(self)

    def member(self: KafkaSource) -> bytes:
        assert parse_metadata(early[0])[0] == -1
        return early[0]

    patch(KafkaSource, "subscribe", noting)
    patch(KafkaSource, "member", member)


def read_uncommitted(patch: Patch) -> None:
    _change_consumer(patch, {"isolation.level": "read_uncommitted"})


def reset_to_latest(patch: Patch) -> None:
    """Let the client jump to the end where the group has no offset, and do not look where it is."""
    _change_consumer(patch, {"auto.offset.reset": "latest"})
    patch(TopicIdentity, "check", lambda _self, _partitions: None)


@in_place_of(parts, "producer_properties")
def random_transactional_id(properties: Any, settings: Any, **how: Any) -> Any:
    """Take a new transactional id with every start: correct, but nobody ends what a kill left."""
    return properties(settings, **how) | {"transactional.id": f"{settings.app}-{uuid.uuid4().hex}"}


@in_place_of(Outbox, "__init__")
def ignored_produce_exceptions(begin: Any, self: Outbox, *arguments: Any, **named: Any) -> None:
    """Go on when the client refuses a record, as when its queue is full."""
    begin(self, *arguments, **named)
    self.producer = _Careless(self.producer)  # type: ignore[assignment]


class _Careless:
    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def produce(self, *arguments: Any) -> None:
        with suppress(Exception):
            self._producer.produce(*arguments)


@in_place_of(Outbox, "_reporter")
def ignored_delivery_reports(_real: Any, *_message: object) -> Callable[..., None]:
    """Never look at what became of a record: harmless, because the commit fails then."""
    return lambda _error, _message: None


@in_place_of(KafkaTransaction, "commit")
def abort_after_commit_timeout(_real: Any, self: KafkaTransaction) -> None:
    """Take a commit without answer for one that has failed."""
    outbox = self._producer()
    if self._call(outbox, "commit_transaction", CALL_TIMEOUT_S) is None:
        self.doubts = outbox.log.end()
        return
    self._call(outbox, "abort_transaction", CALL_TIMEOUT_S)
    self.doubts = ["a new producer, so that only the wrong belief is wrong"]
    raise BatchAbortedError("the commit has failed", resolved=True)


def _change_consumer(patch: Patch, more: dict[str, Any]) -> None:
    properties = kafka_clients.consumer_properties
    patch(parts, "consumer_properties", lambda settings: properties(settings) | more)
