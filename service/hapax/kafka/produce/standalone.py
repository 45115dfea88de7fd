"""Transactions under names of their own: of lanes, of replays, and those that only fence or move.

A replay writes in Kafka transactions: what is written back and the notes of it, or neither. There
is one transactional id per app: a replay that begins ends what a predecessor left, and no other can
commit at the same time. Offsets have no part in it, so there is no group.
The offsets of a group are moved while it is empty, with their metadata.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, cast

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from hapax.core.errors import (
    BatchAbortedError,
    DuplicateInstanceError,
    HapaxError,
    PreflightError,
    ProducerDeadError,
    StopError,
)
from hapax.core.offset_commit import CommittedMetadata, GroupOffset, OffsetCommit
from hapax.core.record_path import Outputs
from hapax.kafka.admin.topics import cluster_id, members
from hapax.kafka.errors import COORDINATOR_MOVES, FORBIDDEN, describe
from hapax.kafka.produce.base import ProducerConfig
from hapax.kafka.produce.transaction import KafkaTransaction
from hapax.kafka.properties import (
    admin_properties,
    build,
    lane_id,
    producer_properties,
    transactional_id,
)
from hapax.kafka.read.offsets_client import OffsetsClient, offset_or_none, reader_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hapax.core.ports import Clock
    from hapax.core.records import Message, TopicPartition as Where
    from hapax.kafka.native import NativePath
    from hapax.settings import Settings


def replay_id(app: str) -> str:
    """Return the transactional id; no worker's and no lane's has a word after the slash."""
    return f"{app}/replay"


def named_transaction(
    settings: Settings, name: str, native: NativePath | None = None, **around: Any
) -> KafkaTransaction:
    properties = producer_properties(settings) | {"client.id": name, "transactional.id": name}
    return KafkaTransaction(ProducerConfig.of(settings, properties, native), **around)


def alone(settings: Settings, name: str, clock: Clock = time) -> KafkaTransaction:
    """Return one that logs nothing: what matters about it is raised."""
    return KafkaTransaction(
        ProducerConfig(
            # A replay is its record and a header more: the largest records would be refused.
            properties={"compression.type": "lz4"}
            | producer_properties(settings, transactional=True)
            | {"transactional.id": name, "client.id": name},
            deadline_s=settings.transaction.timeout_ms / 1000,
        ),
        clock=clock,
        forward=lambda *_line: None,
        watch=lambda _call: nullcontext(),
    )


def fence(settings: Settings, name: str, clock: Clock = time) -> None:
    """End what this id has open; raise ProducerDeadError without an answer: call again."""
    transaction = alone(settings, name, clock)
    try:
        transaction.open()
    finally:
        transaction.close()


class LaneFences:
    """Fences the lanes of a Spark application: their users commit no more."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def lane(self, number: int) -> None:
        fence(self._settings, lane_id(self._settings, number))

    def predecessor(self) -> None:
        """Fence a worker that ran under this name: its open transaction is over at once."""
        fence(self._settings, transactional_id(self._settings))


class ReplayInterruptedError(Exception):
    """The last batch is undone, or done as a whole: open again and look what was replayed."""


class KafkaReplay:
    """Writes batches, each in a transaction of its own."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._transaction = alone(settings, replay_id(settings.app), clock)

    def open(self) -> None:
        """End what an earlier replay left, and keep it from committing ever again."""
        try:
            self._transaction.open()
        except ProducerDeadError as error:
            raise _interrupted(error) from error

    def write(self, messages: Sequence[Message]) -> None:
        """Make all of them visible, or none.

        Raises DuplicateInstanceError when another replay has begun, StopError when a message is
        refused, and ReplayInterruptedError when it must be looked up what has become of them. After
        a request that may have been sent twice it raises that, too, though all is visible: a late
        one of this transaction must not reach into the next.
        """
        transaction = self._transaction
        try:
            transaction.begin()
            transaction.send(Outputs(messages))
            transaction.commit()
        except (BatchAbortedError, ProducerDeadError) as error:
            raise _interrupted(error) from error
        if transaction.doubts:
            raise ReplayInterruptedError(transaction.doubts[0])

    def close(self) -> None:
        self._transaction.close()


def _interrupted(error: BatchAbortedError | ProducerDeadError) -> Exception:
    if isinstance(error, ProducerDeadError) and error.fenced:
        return DuplicateInstanceError(
            "another replay or skip of this pipeline has begun: one at a time"
        )
    if isinstance(error, BatchAbortedError) and error.content:
        return StopError(
            f"a dead letter cannot be written back: {error}. Leave it out by a filter, or let the"
            " input topic take it"
        )
    return ReplayInterruptedError(str(error))


ANSWER_TIMEOUT_S = 10.0
LEAVE_MARGIN_S = 3.0
_REST_S = 0.2
_OCCUPIED = {
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
}

Offsets = dict["Where", "tuple[int, CommittedMetadata]"]


class GroupOffsets:
    """The committed offsets of the pipeline's group."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._properties = reader_properties(settings)
        self._admin = build(
            AdminClient, {**admin_properties(self._properties), "log_level": 0}, None
        )

    def cluster_id(self) -> str | None:
        """Return the id of the cluster; None when the brokers do not return it."""
        try:
            return cluster_id(self._settings)
        except PreflightError:
            return None

    def members(self) -> dict[str, str]:
        """Return client ids, each with its host; raise PreflightError when no broker answers."""
        found = members(self._settings)
        if found is None:
            problem = f"the members of group {self._settings.app} cannot be listed"
            raise PreflightError(f"{problem}: offsets are moved only while the group is empty")
        return {name: host.lstrip("/") for name, host in sorted(found.items())}

    def require_empty(self) -> None:
        """Raise PreflightError with the members' names unless the group has none."""
        found = self.members()
        if found:
            named = ", ".join(f"{name} ({host})" for name, host in found.items())
            raise PreflightError(
                f"group {self._settings.app} has members: {named}. Stop them and try again; the "
                "group keeps a killed member, and a stopped static member, for"
                " HAPAX_GROUP__SESSION_TIMEOUT"
            )

    def await_empty(self, tell: Callable[[str], None]) -> None:
        """Wait as long as the group may keep members that are gone; then as require_empty."""
        timeout_s = self._settings.group.session_timeout_ms / 1000 + LEAVE_MARGIN_S
        give_up_s = time.monotonic() + timeout_s
        while (found := self.members()) and time.monotonic() < give_up_s:
            tell(f"waiting for members to leave the group: {', '.join(found)}")
            time.sleep(_REST_S)
        if found:
            self.require_empty()

    def commit(self, offsets: Offsets) -> None:
        """Set the group's offsets. The coordinator refuses when a member has joined meanwhile."""
        group = self._settings.app
        due = [
            TopicPartition(*where, offset, beside.encode())
            for where, (offset, beside) in offsets.items()
        ]
        give_up_s = time.monotonic() + ANSWER_TIMEOUT_S
        while due:
            failures = self._altered(group, due)
            errors = list(failures.values())
            if any(error.code() in _OCCUPIED for error in errors):
                raise PreflightError(f"a member has joined group {group} meanwhile: stop it")
            final = [error for error in errors if error.code() not in COORDINATOR_MOVES]
            if errors and (final or time.monotonic() > give_up_s):
                reason = describe((final or errors)[0])
                refused = any(error.code() in FORBIDDEN for error in errors)
                hint = "; grant READ on the group and the topic" if refused else ""
                raise HapaxError(f"offsets of group {group} were not set: {reason}{hint}")
            due = [one for one in due if (one.topic, one.partition) in failures]
            if due:
                time.sleep(_REST_S)

    def _altered(self, group: str, due: list[TopicPartition]) -> dict[Where, KafkaError]:
        asked = [ConsumerGroupTopicPartitions(group, due)]
        answer = self._admin.alter_consumer_group_offsets(asked, request_timeout=ANSWER_TIMEOUT_S)[
            group
        ]
        try:
            done = answer.result(ANSWER_TIMEOUT_S).topic_partitions
        except KafkaException as error:
            return {(one.topic, one.partition): error.args[0] for one in due}
        return {(one.topic, one.partition): one.error for one in done if one.error is not None}

    def commit_with(
        self, message: Message, offsets: Offsets, before: Mapping[Where, int | None], clock: Clock
    ) -> None:
        """Write a message and set offsets in one transaction, in an empty group alone.

        Kafka does not fence offsets of a transaction without a member. So they are added first, and
        only then it is looked whether the group is empty: from then on a new member waits for the
        outcome before it reads its offsets. Raises BatchAbortedError when the message is refused,
        PreflightError for members, HapaxError when brokers do not answer.
        """
        queries = OffsetsClient(self._properties)
        member = queries.read_uncommitted.consumer_group_metadata()  # of no member of the group
        progress = [
            GroupOffset(*where, offset, beside.encode())
            for where, (offset, beside) in offsets.items()
        ]
        transaction = alone(self._settings, replay_id(self._settings.app), clock)
        try:
            transaction.open()
            transaction.begin()
            transaction.send(Outputs([message]))
            transaction.send_offsets(OffsetCommit(progress, bytes(cast("Any", member))))
            try:
                self.require_empty()
                # Unstable: the offsets before the open transaction, which is this one.
                now = queries.group_offsets(offsets, ANSWER_TIMEOUT_S, stable=False)
                if {where: offset_or_none(at) for where, at in now.items()} != before:
                    raise PreflightError("the group has moved on meanwhile: try again")  # noqa: TRY301 - one way out
            except BaseException:
                transaction.abort()
                raise
            transaction.commit()
        except ProducerDeadError as error:
            raise HapaxError(
                f"the outcome is unknown ({error}): check it with hapax offsets"
            ) from error
        finally:
            transaction.close()
            queries.close()
