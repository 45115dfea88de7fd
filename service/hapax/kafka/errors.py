"""Broker and client errors, translated once: what happens next, by code and by call.

Sources: librdkafka's introduction (fatal, abortable, retriable flags), and what a Kafka 4.3.1
broker really answered in each call (docs/design.md, "Errors").
"""

from __future__ import annotations

import time
from enum import Enum
from operator import methodcaller
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from hapax.core.records import TopicPartition

T = TypeVar("T")

client_headers: Callable[[Any], Any] = methodcaller("headers")
"""Reads a message's headers; raises one of NO_TEXT for a name that is not UTF-8, and where the
native path took the message for one that holds a NUL: the client alone hands that out cut.

confluent-kafka 2.16 returns a broken list then and leaves the error set. A direct call that
Python (3.11 or newer) has specialised does not notice: the error comes up at some later place and
ends the process. A call through an object is always checked.
"""
NO_TEXT = (UnicodeDecodeError, SystemError)
NAME_UNREADABLE = "a header name is not UTF-8, or holds a NUL character"

LINE_IS_NO_TEXT = "a log line of the client is not UTF-8"
"""confluent-kafka hands lines over as text; for one that is none the call that serves them raises
UnicodeDecodeError, and what it would have returned is dropped."""
CONTENT = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,  # larger than message.max.bytes of client or topic
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG,  # CORRUPT_MESSAGE: compacted topics refuse records without key so
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,  # refused by the broker's validation, e.g. no key on compacted
        KafkaError.INVALID_TIMESTAMP,  # outside message.timestamp.before/after.max.ms
        KafkaError.POLICY_VIOLATION,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._INVALID_ARG,
        KafkaError.TOPIC_EXCEPTION,  # an output named an impossible topic
    }
)
"""Refusals that lie in the record: repeating it as it is cannot help."""
_KEYLESS = " (or it has no key, and its topic is compacted: cleanup.policy)"
_ABOUT = {
    KafkaError.INVALID_TIMESTAMP: " (the topic's message.timestamp.before.max.ms and"
    " message.timestamp.after.max.ms: raise them, or send another timestamp; outputs of a function:"
    " HAPAX_OUTPUT__TIMESTAMP=now)",
    KafkaError.INVALID_RECORD: _KEYLESS,
    KafkaError.INVALID_MSG: _KEYLESS,
}
REFUSED = frozenset(
    {
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,  # above the broker's transaction.max.timeout.ms
    }
)
"""Answers to init_transactions that no repetition changes."""
UNKNOWN_TOPIC = frozenset({KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART})
MEMBER_FENCED = frozenset(
    {KafkaError.FENCED_INSTANCE_ID, KafkaError.FENCED_MEMBER_EPOCH, KafkaError._FENCED}
)
"""What costs a member its place in the group."""
COORDINATOR_MOVES = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""A coordinator that starts or hands over: the same question again gets its answer."""
_REST_S = 0.1
FORBIDDEN = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""Rights: no repetition helps, they must be granted."""
UNRESOLVED_REBUILD = frozenset(
    {
        # Kafka's own client made this fatal because going on in place can duplicate (KAFKA-17822);
        # librdkafka continues by an epoch bump, and a new producer is the safer reaction.
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.INVALID_TXN_STATE,
    }
)


class Reaction(Enum):
    """What happens next."""

    AGAIN = "the same call again"
    ABORT = "roll back, rewind, take the batch again"
    REBUILD = "this producer is dead"


def of_group(ask: Callable[[], T], within_s: float) -> T:
    """Ask again while the coordinator starts or hands over; raise its last KafkaException."""
    give_up_s = time.monotonic() + within_s
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in COORDINATOR_MOVES or time.monotonic() > give_up_s:
                raise
        time.sleep(_REST_S)


def reaction(error: KafkaError) -> Reaction:
    """Say what happens next after a transactional call raised ``error``."""
    if error.fatal() or error.code() in UNRESOLVED_REBUILD:
        return Reaction.REBUILD
    if error.txn_requires_abort():
        return Reaction.ABORT
    if error.retriable():
        return Reaction.AGAIN
    # No flag at all counts as fatal (librdkafka, rdkafka.h): the state is not known.
    return Reaction.REBUILD


def is_member_fenced(error: KafkaError) -> bool:
    return _is_one_of(MEMBER_FENCED, error)


def is_of_classic_group(error: KafkaError) -> bool:
    """Whether the group is one of the classic protocol, whose members brokers cannot convert."""
    return _is_one_of({KafkaError.GROUP_ID_NOT_FOUND}, error)


def _is_one_of(codes: Collection[int], error: KafkaError) -> bool:
    """Compare an error of a consumer with some codes.

    The client reports a fatal one as ``_FATAL`` and leaves of its code only the code's own
    description; that description is asked of the client, not written down here.
    """
    return error.code() in codes or (
        error.code() == KafkaError._FATAL
        and any(KafkaError(code).str() in error.str() for code in codes)
    )


def is_fenced(error: KafkaError) -> bool:
    """Whether it is; after the last epoch (32,766) the loser gets a mapping error."""
    return error.code() in {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    }


def place_of(message: Any) -> TopicPartition:
    """Return where a message of the client is from; an event of no partition has the number -1."""
    number = message.partition()
    return (message.topic() or "", -1 if number is None else number)


def offset_of(message: Any) -> int:
    """Return the offset of a message that is a record: only events may be without one."""
    offset: int | None = message.offset()
    if offset is None:
        raise ValueError(f"a record of {place_of(message)} without an offset")
    return offset


def describe(error: KafkaError) -> str:
    """Return code and text in one line, with the settings that a refusal by that code is about."""
    return f"{error.name()}: {error.str()}{_ABOUT.get(error.code(), '')}"


def transactional_error(exception: Exception) -> KafkaError:
    """Return the KafkaError inside an exception of a transactional call.

    With a delivery callback pending the client raises SystemError instead and keeps the real
    error as its cause. Anything else that is raised leaves the producer in an unknown state.
    """
    cause: BaseException | None = exception
    while cause is not None:
        if isinstance(cause, KafkaError):
            return cause
        if isinstance(cause, KafkaException) and isinstance(cause.args[0], KafkaError):
            return cause.args[0]
        cause = cause.__cause__ or cause.__context__
    return KafkaError(KafkaError._FAIL, f"{type(exception).__name__}: {exception}", fatal=True)
