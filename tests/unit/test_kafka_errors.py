"""Errors of the client, translated once: every cell that was measured, and its reaction."""

from enum import Enum
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from hapax.kafka.errors import (
    CONTENT,
    FORBIDDEN,
    REFUSED,
    Reaction,
    describe,
    is_fenced,
    is_member_fenced,
    reaction,
    transactional_error,
)
from hapax.kafka.produce.producer import Outbox

K = KafkaError


class Flag(Enum):
    FATAL = "F"
    ABORT = "A"
    RETRIABLE = "R"
    NONE = "-"


F, A, R, NONE = Flag.FATAL, Flag.ABORT, Flag.RETRIABLE, Flag.NONE


def error(code: int, flag: Flag) -> KafkaError:
    return KafkaError(
        code, "text", fatal=flag is F, retriable=flag is R, txn_requires_abort=flag is A
    )


# As the client reports them: AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn.
MEASURED = [
    (K._FENCED, "FAAF"),
    (K._FENCED, "FFFF"),
    (K.INVALID_TXN_STATE, "FFFF"),
    (K.INVALID_PRODUCER_ID_MAPPING, "AAFA"),
    (K.UNKNOWN_PRODUCER_ID, "AAAA"),
    (K.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "FFFF"),
    (K.CLUSTER_AUTHORIZATION_FAILED, "FFFF"),
    (K.TOPIC_AUTHORIZATION_FAILED, "AAA"),
    (K.GROUP_AUTHORIZATION_FAILED, "AAA"),
    (K.CONCURRENT_TRANSACTIONS, "RRRR"),
    (K.COORDINATOR_LOAD_IN_PROGRESS, "RRRR"),
    (K.NOT_COORDINATOR, "RRRR"),
    (K.ILLEGAL_GENERATION, "A"),
    (K.UNKNOWN_MEMBER_ID, "A"),
    (K.FENCED_INSTANCE_ID, "A"),
    (K.REBALANCE_IN_PROGRESS, "A"),
    (K.UNKNOWN, "AAAA"),
    (K._TIMED_OUT, "RRRR"),
    (K._CONFLICT, "R"),
    (K._INCONSISTENT, "A"),
    (K._STATE, "-"),
]
REACTIONS = {"F": Reaction.REBUILD, "A": Reaction.ABORT, "R": Reaction.AGAIN, "-": Reaction.REBUILD}
SAFER = {K.INVALID_PRODUCER_ID_MAPPING, K.INVALID_TXN_STATE}


@pytest.mark.parametrize(
    ("code", "letter"), [(code, letter) for code, letters in MEASURED for letter in letters]
)
def test_what_happens_next_follows_the_flags_of_the_client(code, letter):
    expected = Reaction.REBUILD if code in SAFER else REACTIONS[letter]
    assert reaction(error(code, Flag(letter))) is expected


@pytest.mark.parametrize("code", sorted(SAFER))
@pytest.mark.parametrize("flag", list(Flag))
def test_a_lost_producer_id_means_a_new_producer_whatever_the_client_would_do(code, flag):
    assert reaction(error(code, flag)) is Reaction.REBUILD


def test_fatal_is_stronger_than_abortable_than_retriable_and_no_flag_counts_as_fatal():
    every = KafkaError(K.UNKNOWN, "", fatal=True, retriable=True, txn_requires_abort=True)
    both = KafkaError(K.UNKNOWN, "", retriable=True, txn_requires_abort=True)
    assert (reaction(every), reaction(both)) == (Reaction.REBUILD, Reaction.ABORT)
    assert reaction(error(K.UNKNOWN, NONE)) is Reaction.REBUILD


@pytest.mark.parametrize(
    ("code", "fenced"),
    [
        (K._FENCED, True),
        (K.PRODUCER_FENCED, True),
        (K.INVALID_PRODUCER_EPOCH, True),
        (K.INVALID_PRODUCER_ID_MAPPING, True),  # past the last epoch the id itself is a new one
        (K.FENCED_INSTANCE_ID, False),
        (K.INVALID_TXN_STATE, False),
        (K._TIMED_OUT, False),
    ],
)
def test_only_a_newer_producer_of_the_id_is_a_fence(code, *, fenced):
    assert is_fenced(error(code, F)) is fenced


def test_what_lies_in_the_record_what_needs_rights_and_what_is_refused_are_kept_apart():
    assert K.MSG_SIZE_TOO_LARGE in CONTENT
    assert not CONTENT & FORBIDDEN
    assert not CONTENT & REFUSED
    assert K._TIMED_OUT not in CONTENT | FORBIDDEN | REFUSED


@pytest.mark.parametrize("explicit", [True, False])
def test_the_error_is_found_inside_what_the_client_raises_and_behind_a_system_error(*, explicit):
    inner = error(K._FENCED, F)
    assert describe(inner) == "_FENCED: text"
    assert transactional_error(KafkaException(inner)) is inner
    outer = SystemError("returned a result with an exception set")
    if explicit:
        outer.__cause__ = KafkaException(inner)
    else:
        outer.__context__ = KafkaException(inner)
    assert transactional_error(outer) is inner


@pytest.mark.parametrize("foreign", [RuntimeError("?"), KafkaException("text only")])
def test_anything_else_leaves_the_producer_in_an_unknown_state(foreign):
    found = transactional_error(foreign)
    assert found.fatal()
    assert reaction(found) is Reaction.REBUILD


def test_a_fatal_error_that_comes_out_bare_is_heard_by_the_call_that_asks_next():
    fatal = KafkaError(KafkaError._FENCED, "fenced", fatal=True)

    def fail(_timeout_s: float) -> None:
        raise cast("BaseException", fatal)

    outbox = Outbox.__new__(Outbox)
    outbox.producer = cast("Any", SimpleNamespace(poll=fail, flush=fail))
    outbox.serve()
    outbox.await_deliveries(1.0)
    assert transactional_error(cast("Exception", fatal)) is fatal


@pytest.mark.parametrize("code", [K.FENCED_INSTANCE_ID, K.FENCED_MEMBER_EPOCH, K._FENCED])
def test_a_member_is_fenced_by_its_code_also_where_the_client_wraps_it_and_by_no_text(code):
    assert is_member_fenced(KafkaError(code, "whatever it says", fatal=True))
    wrapped = f"Fatal error: {KafkaError(code).str()}: in the words of the client"
    assert is_member_fenced(KafkaError(K._FATAL, wrapped, fatal=True))
    assert not is_member_fenced(KafkaError(K._FATAL, "the topic fenced-garden is gone", fatal=True))
    assert not is_member_fenced(KafkaError(K.TOPIC_AUTHORIZATION_FAILED, "fenced-garden"))
