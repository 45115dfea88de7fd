"""The producer's adapter, on a client that fails as it is told: what may follow what."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, cast
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError
from msgspec.structs import replace

from hapax.core.errors import BatchAbortedError, PreflightError, ProducerDeadError, StopError
from hapax.core.ports import send_progress
from hapax.core.record_path import Outputs
from hapax.kafka.produce import producer as kafka_producer, transaction as kafka_transaction
from hapax.kafka.produce.base import MessageSets
from hapax.kafka.produce.producer import ClientLog
from hapax.kafka.produce.transaction import KafkaTransaction
from tests.kit.producers import (
    FakeProducer,
    commit_of,
    failing,
    message,
    transaction,
    transactional,
)
from tests.kit.rulebook import Claim

if TYPE_CHECKING:
    from hapax.core.ports import Source

K = KafkaError
P0 = {("in", 0): 5}
Patch = pytest.MonkeyPatch


def whole(kafka: KafkaTransaction) -> None:
    kafka.begin()
    kafka.send(Outputs([message()]))
    kafka.send_offsets(commit_of(P0))
    kafka.commit()


def test_a_transaction_is_begun_sent_and_committed_without_a_flush(monkeypatch):
    kafka, producer, _ = transaction(monkeypatch)
    whole(kafka)
    assert transactional(producer) == [
        "begin_transaction",
        "send_offsets_to_transaction",
        "commit_transaction",
    ]
    assert "flush" not in producer.calls
    assert kafka.doubts == []


def test_a_timestamp_of_0_is_not_taken_for_now(monkeypatch):
    kafka, producer, _ = transaction(monkeypatch)
    kafka.begin()
    kafka.send(Outputs([replace(message(), timestamp_ms=at) for at in (None, 0, 1, 5)]))
    assert producer.timestamps == [0, 1, 1, 5]  # to the client 0 is now


def test_a_commit_that_timed_out_is_only_ever_committed_again(monkeypatch):
    late = [failing(K._TIMED_OUT, retriable=True) for _ in range(3)]
    kafka, producer, _ = transaction(monkeypatch, commit_transaction=[*late])
    whole(kafka)
    assert transactional(producer)[2:] == ["commit_transaction"] * 4
    assert len(kafka.doubts) == 3


def test_a_commit_past_its_deadline_is_left_to_a_new_producer(monkeypatch):
    late = [failing(K._TIMED_OUT, retriable=True) for _ in range(99)]
    kafka, producer, clock = transaction(monkeypatch, commit_transaction=[*late])
    producer.on["commit_transaction"] = lambda: clock.wait(3.0)
    with pytest.raises(ProducerDeadError, match="commit outcome unknown"):
        whole(kafka)
    assert "abort_transaction" not in producer.calls


@pytest.mark.parametrize("call", ["send_offsets_to_transaction", "commit_transaction"])
@pytest.mark.parametrize(("lost", "others_answered"), [(True, True), (True, False), (False, True)])
def test_a_producer_that_brokers_have_cut_off_is_not_asked_until_the_deadline(
    monkeypatch, call, *, lost, others_answered
):
    """In an outage the same call may still succeed; the last word is then a new producer's.

    Without a lost connection the question may stand behind the call, which a broker is slow with.
    """
    late: list[Exception | None] = [failing(K._TIMED_OUT, retriable=True)] * 3
    kafka, producer, _ = transaction(monkeypatch, **{call: late})
    log = kafka._producer().log
    producer.on[call] = lambda: log.log(7, "", "FAIL", "UP -> DOWN" if lost else "slow")
    FakeProducer.fail["list_topics"] = [failing(K._TRANSPORT) for _ in range(3)]
    monkeypatch.setattr(kafka_producer, "new_client_answered", lambda *_asked: others_answered)
    monkeypatch.setattr(kafka_producer, "LOOK_S", 0.0)
    is_cut_off = lost and others_answered
    if is_cut_off:
        with pytest.raises(ProducerDeadError, match=f"{call}: outcome unknown"):
            whole(kafka)
    else:
        whole(kafka)
    assert producer.calls.count(call) == (1 if is_cut_off else 4)
    assert "abort_transaction" not in producer.calls


def test_an_answer_that_names_no_broker_is_none(monkeypatch):
    """It comes from a broker that stops, and a client forgets all addresses with it."""
    kafka, _, _ = transaction(monkeypatch)
    monkeypatch.setattr(FakeProducer, "brokers", {})
    with pytest.raises(ProducerDeadError, match="names none") as caught:
        kafka.open()
    assert caught.value.unanswered


def test_a_message_that_is_refused_fails_its_batch_and_is_named(monkeypatch):
    fail: list[Exception | None] = [None, failing(K.MSG_SIZE_TOO_LARGE)]
    kafka, producer, _ = transaction(monkeypatch, produce=fail)
    kafka.begin()
    with pytest.raises(BatchAbortedError) as caught:
        kafka.send(Outputs([message(b"a"), message(b"b"), message(b"c")]))
    assert list(caught.value.refused) == [1]
    assert caught.value.content
    assert "abort_transaction" in producer.calls


def test_a_message_that_the_broker_refused_costs_the_producer(monkeypatch):
    kafka, producer, _ = transaction(monkeypatch)
    producer.fail["commit_transaction"] = [failing(K.INVALID_RECORD, abort=True)]
    with pytest.raises(BatchAbortedError):
        whole(kafka)
    assert kafka.doubts == ["commit: a message was refused"]


def test_an_output_topic_that_the_client_knows_to_be_gone_is_no_fault_of_a_record(monkeypatch):
    kafka, producer, _ = transaction(monkeypatch, produce=[failing(K._UNKNOWN_TOPIC)])
    kafka.begin()
    with pytest.raises(StopError, match="output topic out no longer exists"):
        kafka.send(Outputs([message()]))
    assert transactional(producer)[-1] == "abort_transaction"


@pytest.mark.parametrize(
    ("error", "content"),
    [(TypeError("header"), True), (ValueError("topic"), True), (failing(K._STATE), False)],
)
def test_what_the_client_cannot_encode_is_content_too_and_its_bad_state_is_not(
    monkeypatch, error, *, content
):
    kafka, _, _ = transaction(monkeypatch, produce=[error])
    kafka.begin()
    with pytest.raises(BatchAbortedError) as caught:
        kafka.send(Outputs([message()]))
    assert caught.value.content is content
    assert content or caught.value.refused == {}


def test_a_full_queue_is_waited_for(monkeypatch):
    kafka, producer, _ = transaction(monkeypatch, produce=[BufferError(), BufferError()])
    whole(kafka)
    assert producer.sent == [b"v"]


def test_offsets_of_partitions_that_are_not_ours_are_never_sent(monkeypatch):
    kafka, producer, _ = transaction(monkeypatch)
    kafka.begin()
    with pytest.raises(BatchAbortedError, match="no longer assigned"):
        send_progress(cast("Source", Claim(b"member", ("in", 0))), kafka, {("in", 1): 3})
    assert transactional(producer) == ["begin_transaction", "abort_transaction"]


@pytest.mark.parametrize(
    ("step", "error", "raised", "resolved"),
    [
        ("send_offsets_to_transaction", failing(K.ILLEGAL_GENERATION, abort=True), 1, True),
        ("commit_transaction", failing(K._INCONSISTENT, abort=True), 1, False),
        ("send_offsets_to_transaction", failing(K._FENCED, abort=True), 1, True),
        ("commit_transaction", failing(K._FENCED, fatal=True), 2, False),
        ("commit_transaction", failing(K.INVALID_PRODUCER_ID_MAPPING, abort=True), 2, False),
        ("commit_transaction", failing(K.UNKNOWN), 2, False),
        ("send_offsets_to_transaction", failing(K.GROUP_AUTHORIZATION_FAILED, abort=True), 3, 0),
    ],
)
def test_a_failed_step_rolls_back_rebuilds_or_stops(monkeypatch, step, error, raised, *, resolved):
    kafka, producer, _ = transaction(monkeypatch)
    producer.fail[step] = [error]
    kinds = {1: BatchAbortedError, 2: ProducerDeadError, 3: StopError}
    with pytest.raises(kinds[raised]) as caught:
        whole(kafka)
    assert ("abort_transaction" in producer.calls) is (raised == 1)
    if isinstance(caught.value, BatchAbortedError):
        assert caught.value.resolved is resolved


def test_an_abort_that_fails_means_a_new_producer(monkeypatch):
    kafka, _, _ = transaction(
        monkeypatch,
        commit_transaction=[failing(K._INCONSISTENT, abort=True)],
        abort_transaction=[failing(K._FENCED, fatal=True)],
    )
    with pytest.raises(ProducerDeadError) as caught:
        whole(kafka)
    assert caught.value.fenced


@pytest.mark.parametrize("call", ["flush", "poll"])
def test_a_report_that_meets_a_fatal_error_in_the_client_means_a_new_producer(monkeypatch, call):
    kafka, producer, _ = transaction(
        monkeypatch, produce=[failing(K._STATE)], abort_transaction=[failing(K._FENCED, fatal=True)]
    )

    bare = "<method 'code'> returned a result with an exception set"
    producer.on[call] = Mock(side_effect=SystemError(bare))
    with pytest.raises(ProducerDeadError) as caught:
        whole(kafka)
    assert caught.value.fenced
    assert call in producer.calls


def test_whoever_is_refused_in_a_set_of_its_own_is_blamed_and_then_sets_come_back(monkeypatch):
    fail = [failing(K._INCONSISTENT, abort=True) for _ in range(3)]
    kafka, _, _ = transaction(monkeypatch, commit_transaction=[*fail[:2], None, fail[2]])

    def refused() -> list[int]:
        """Let the brokers refuse a batch; return the messages that are blamed."""
        producer = fake(kafka)

        def report() -> None:
            if producer.reports:
                producer.reports.pop()(K(K.INVALID_RECORD), None)

        producer.on["commit_transaction"] = report
        with pytest.raises(BatchAbortedError) as caught:
            whole(kafka)
        producer.on.clear()
        return list(caught.value.refused)

    assert refused() == [], "no reports were asked for"
    assert refused() == [], "all of its set were refused with it"
    assert kafka.doubts == ["commit: a message was refused"]
    kafka.open()
    assert kafka._producer().alone
    kafka.begin()  # offsets alone between two attempts: nothing is learned from them
    kafka.send_offsets(commit_of({("in", 0): 1}))
    kafka.commit()
    assert refused() == [0]
    kafka.open()
    assert kafka._producer().alone, "its dead letter may be refused as well"
    whole(kafka)
    assert kafka.doubts == ["commit: messages were sent one by one, sets come next"]
    kafka.open()
    assert not kafka._producer().alone
    whole(kafka)
    assert fake(kafka).reports == []
    assert kafka.doubts == []


def test_what_is_refused_before_the_last_message_was_handed_over_is_learned_as_well(monkeypatch):
    """The producer refuses all from then on, and says no more than that (_STATE)."""
    kafka, _, _ = transaction(monkeypatch)

    def refused() -> tuple[list[int], bool]:
        """Let the brokers refuse the first of two messages; return who is blamed."""
        producer = fake(kafka)
        producer.fail["produce"] = [None, failing(K._STATE)]

        def report() -> None:
            if producer.reports:
                producer.reports.pop(0)(K(K.MSG_SIZE_TOO_LARGE), None)

        producer.on["abort_transaction"] = report
        kafka.begin()
        with pytest.raises(BatchAbortedError, match="_STATE") as caught:
            kafka.send(Outputs([message(), message()]))
        producer.on.clear()
        return list(caught.value.refused), caught.value.content

    assert refused() == ([], False), "no reports were asked for"
    assert refused() == ([], True), "others of its set may have been refused with it"
    assert kafka.doubts == ["send: a message was refused"]
    kafka.open()
    assert kafka._producer().alone
    assert refused() == ([0], True)


def fake(kafka: KafkaTransaction) -> FakeProducer:
    return cast("FakeProducer", kafka._producer().producer)


def test_sets_that_nobody_is_to_blame_for_become_smaller():
    sets = MessageSets(1 << 20)
    assert sets.properties() == {"batch.size": 1 << 20}
    assert sets.refuse({0: "x", 1: "x"}, alone=False) == {}
    assert sets.properties() == {"batch.size": 1 << 20, "batch.num.messages": 1}
    assert [sets.accept() for _ in range(5)] == [False] * 4 + [True]
    assert sets.properties() == {"batch.size": 1 << 19}
    assert not sets.accept()


def test_a_lost_connection_inside_a_transaction_is_a_doubt(monkeypatch):
    kafka, producer, _ = transaction(monkeypatch)
    log = kafka._producer().log
    log.log(7, "%s %s", "BROKER", "Disconnected before this transaction")
    producer.on["commit_transaction"] = lambda: log.log(7, "", "REQTMOUT", "EndTxn")
    whole(kafka)
    assert kafka.doubts == ["REQTMOUT: EndTxn"]
    kafka.open()
    assert kafka.doubts == []


class CountedRequests:
    """What the native part would report."""

    def __init__(self) -> None:
        self.gone: list[str] = []
        self.waiting: list[str] = []
        self.ends = 0

    def requests_lost(self, _client: object) -> list[str]:
        gone, self.gone = self.gone, []
        return gone

    def requests_unanswered(self, _client: object) -> list[str]:
        return self.waiting

    def requests_disconnects(self, _client: object) -> int:
        return self.ends


def counted(patch: Patch) -> tuple[KafkaTransaction, FakeProducer, CountedRequests]:
    kafka, producer, _ = transaction(patch)
    requests = CountedRequests()
    kafka._producer().log.watch(requests, None)
    return kafka, producer, requests


def test_where_requests_are_counted_a_lost_one_is_a_doubt_and_a_line_is_none(monkeypatch):
    kafka, producer, requests = counted(monkeypatch)
    log = kafka._producer().log
    requests.gone = ["EndTxn of the transaction before"]
    producer.on["commit_transaction"] = lambda: log.log(7, "", "FAIL", "Disconnected")
    whole(kafka)
    assert kafka.doubts == []
    producer.on["commit_transaction"] = lambda: requests.gone.append("EndTxn: sent, and lost")
    whole(kafka)
    assert kafka.doubts == ["EndTxn: sent, and lost"]
    kafka.open()
    assert kafka.doubts == []


def test_where_requests_are_counted_one_without_an_answer_at_the_end_is_a_doubt(monkeypatch):
    kafka, _, requests = counted(monkeypatch)
    requests.waiting = ["AddPartitionsToTxn: sent, and not answered"]
    kafka.begin()
    kafka.abort()
    assert kafka.doubts == ["AddPartitionsToTxn: sent, and not answered"]
    with pytest.raises(ProducerDeadError, match="AddPartitionsToTxn"):
        kafka.begin()


def test_a_line_about_another_cluster_is_a_doubt_from_either_source():
    for requests in (None, CountedRequests()):
        log = ClientLog("producer", lambda *_line: None)
        if requests is not None:
            log.watch(requests, None)
        log.begin()
        log.log(4, "", "CLUSTERID", "Broker b reports different ClusterId than previously known")
        assert len(log.end()) == 1


@pytest.mark.parametrize("inside", [0, 1])
def test_a_connection_that_ends_is_known_though_it_and_a_line_without_words_doubt_nothing(inside):
    requests = CountedRequests()
    log = ClientLog("producer", lambda *_line: None)
    log.log(7, "")
    log.log(7, "%s", "BROKER", "state UP")
    assert log.doubts == []
    log.watch(requests, None)
    requests.ends = 3
    log.begin()
    requests.ends += inside
    assert log.disconnected == bool(inside)
    assert log.end() == []


def test_a_start_that_brokers_refuse_says_so_and_one_without_answer_is_tried_again(monkeypatch):
    late = failing(K._TIMED_OUT, retriable=True)
    kafka, _, _ = transaction(monkeypatch, init_transactions=[late, late])
    FakeProducer.fail = {"init_transactions": [failing(K.INVALID_TRANSACTION_TIMEOUT)]}
    with pytest.raises(PreflightError, match="10"):
        kafka.open()
    FakeProducer.fail = {"list_topics": [late]}
    with pytest.raises(ProducerDeadError, match="no broker answered"):
        kafka.open()
    with pytest.raises(ProducerDeadError, match="no producer"):
        kafka.begin()


def test_offsets_whose_call_never_returns_cost_the_producer_and_not_the_process(monkeypatch):
    monkeypatch.setattr(kafka_transaction, "RESEND_S", -0.9)  # and a margin of 1 s
    gate = threading.Event()
    kafka, producer, _ = transaction(monkeypatch)
    producer.on["send_offsets_to_transaction"] = gate.wait  # type: ignore[assignment]
    kafka.begin()
    kafka.send(Outputs([message()]))
    with pytest.raises(ProducerDeadError, match="hangs"):
        kafka.send_offsets(commit_of(P0))
    with pytest.raises(ProducerDeadError, match="no producer"):
        kafka.begin()
    kafka.open()
    whole(kafka)
    gate.set()


@pytest.mark.parametrize("by_count", [False, True])
@pytest.mark.parametrize("hung", [0, 1])
def test_offsets_that_wait_after_a_lost_connection_are_given_up_soon(
    monkeypatch, hung, *, by_count
):
    monkeypatch.setattr(kafka_transaction, "LOST_S", 0.05)
    gate = threading.Event()
    requests: CountedRequests | None = None
    if by_count:
        kafka, producer, requests = counted(monkeypatch)
    else:
        kafka, producer, _ = transaction(monkeypatch)
    kafka._caller.hung = hung
    log = kafka._producer().log

    def lose() -> None:
        if requests is not None:
            requests.ends += 1
        else:
            log.log(7, "", "FAIL", "Disconnected: the group's coordinator is gone")
        gate.wait()

    producer.on["send_offsets_to_transaction"] = lose
    kafka.begin()
    began_s = time.monotonic()
    with pytest.raises(ProducerDeadError, match="hangs"):
        kafka.send_offsets(commit_of(P0))
    gate.set()
    assert time.monotonic() - began_s < kafka_transaction.RESEND_S / 2
    assert kafka._caller.hung == hung + 1, "the next call may take twice as long"
    kafka.open()
    whole(kafka)
    assert kafka._caller.hung == 0
