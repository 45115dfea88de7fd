"""The committed offset of a group without members, which one transactional id alone moves.

Registering ends every transaction of the id, so the stable answer should come at once. After a
broker was killed it was seen not to come at all (Kafka 4.3.1, once in 32 strikes): an offset of the
last transaction hangs in the group, pending under the producer's id, and holds the answer back for
good. Why it stays is not known; brokers refuse late copies of such requests. A further transaction
of the same producer that is rolled back takes it along. Rolling back moves nothing, whatever it
meets: what hung belongs to no transaction that can still commit, because the id has registered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from hapax.core.errors import BatchAbortedError, StopError
from hapax.core.offset_commit import GroupOffset, OffsetCommit
from hapax.kafka.errors import FORBIDDEN, describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Consumer

    from hapax.core.records import TopicPartition as Where
    from hapax.kafka.produce.transaction import KafkaTransaction

ANSWER_TIMEOUT_S = 5.0
_HELD_BACK = (KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT)


def stable_offset(
    member: Consumer, where: Where, what: str, held_by: KafkaTransaction | None = None
) -> TopicPartition:
    """Return the client's answer for one partition.

    what     names it in errors
    held_by  the producer that alone moves the offset, just registered; None: it is not ours to move
    Raises BatchAbortedError when no answer comes, StopError when a right is missing.
    """

    def committed() -> TopicPartition:
        (answer,) = member.committed([TopicPartition(*where)], timeout=ANSWER_TIMEOUT_S)
        if answer.error is not None:
            raise KafkaException(answer.error)
        return answer

    try:
        return _unhung(committed, member, where, held_by)
    except KafkaException as exception:
        error: KafkaError = exception.args[0]
        if error.code() in FORBIDDEN:
            raise StopError(f"{what} cannot be read: {describe(error)}; grant the right") from None
        raise BatchAbortedError(f"{what} is not known: {describe(error)}", resolved=False) from None


def _unhung(
    committed: Callable[[], TopicPartition],
    member: Consumer,
    where: Where,
    held_by: KafkaTransaction | None,
) -> TopicPartition:
    """Ask; when the answer is held back, roll back what holds it, and ask once more."""
    try:
        return committed()
    except KafkaException as exception:
        if held_by is None or exception.args[0].code() not in _HELD_BACK:
            raise
    held_by.begin()
    nothing = GroupOffset(*where, 0)
    held_by.send_offsets(OffsetCommit([nothing], bytes(member.consumer_group_metadata())))
    held_by.abort()
    return committed()
