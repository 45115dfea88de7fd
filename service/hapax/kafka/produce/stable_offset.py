"""The committed offset of a group without members, which one transactional id alone moves.

Registering ends every transaction of the id, so the stable answer comes at once. It does not come
where the brokers have dropped the marker of a transaction (docs/non-obvious.md, "A cluster that is
killed whole may forget markers"). Nothing is done about that here: a producer cannot know how such
a transaction was decided, and a further one of the same producer would end it along with itself.
Rolled back that way, an offset that was committed went back by a batch (seen once in the campaign
on two clusters).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from hapax.core.errors import BatchAbortedError, StopError
from hapax.kafka.errors import FORBIDDEN, describe, of_group

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from hapax.core.records import TopicPartition as Where

ANSWER_TIMEOUT_S = 5.0
_HELD_BACK = (KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT)


def stable_offset(member: Consumer, where: Where, what: str) -> TopicPartition:
    """Return the client's answer for one partition. ``what`` names it in errors.

    Raises BatchAbortedError when no answer comes, StopError when a right is missing.
    """

    def asked() -> TopicPartition:
        (answer,) = member.committed([TopicPartition(*where)], timeout=ANSWER_TIMEOUT_S)
        if answer.error is not None:
            raise KafkaException(answer.error)
        return answer

    try:
        return of_group(asked, ANSWER_TIMEOUT_S)
    except KafkaException as exception:
        raise _unknown(what, _refused(member) or exception.args[0]) from None


def _refused(member: Consumer) -> KafkaError | None:
    """Return why the group's coordinator is not told, which no answer but an event says.

    librdkafka goes on asking for the coordinator of a group that it may not see, in silence
    (rd_kafka_cgrp_handle_FindCoordinator).
    """
    try:
        event = member.poll(0)
    except UnicodeDecodeError:  # errors.LINE_IS_NO_TEXT
        return None
    error = None if event is None else event.error()
    return error if error is not None and error.code() in FORBIDDEN else None


def _unknown(what: str, error: KafkaError) -> BatchAbortedError | StopError:
    if error.code() in FORBIDDEN:
        return StopError(f"{what} cannot be read: {describe(error)}; grant the right")
    hint = ""
    if error.code() in _HELD_BACK:
        hint = "; if brokers answer otherwise, a transaction hangs in it: hapax transactions list"
    return BatchAbortedError(f"{what} is not known: {describe(error)}{hint}", resolved=False)
