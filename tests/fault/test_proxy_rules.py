"""Rules of the proxy that campaigns need: changed and held answers, counts, one broker alone."""

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from tests.kit.faults import ALWAYS, Rule

INVALID_TRANSACTION_TIMEOUT = 50
NEVER = 1


class Bound:
    """A transactional producer that goes through the proxy."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": topic,
                "log_level": 0,
                "linger.ms": 0,
                "retry.backoff.ms": 5,
                "reconnect.backoff.ms": 5,
                "socket.timeout.ms": 2000,
            }
        )

    def transact(self, *values: bytes, commit: bool = True) -> None:
        self.producer.begin_transaction()
        for value in values:
            self.producer.produce(self.topic, value)
            assert self.producer.flush(30) == 0
        if commit:
            self.producer.commit_transaction(30)
        else:
            self.producer.abort_transaction(30)


@pytest.fixture
def bound(sandbox, proxied_broker, unique):
    topic = unique("bound")
    sandbox.create_topic(topic)
    return Bound(proxied_broker.proxied, topic)


def test_a_changed_answer_is_what_the_client_reads(bound, proxied_broker):
    rule = proxied_broker.proxy.add(
        Rule("InitProducerId", "refuse", code=INVALID_TRANSACTION_TIMEOUT)
    )
    with pytest.raises(KafkaException) as raised:
        bound.producer.init_transactions(30)
    assert raised.value.args[0].code() == INVALID_TRANSACTION_TIMEOUT
    assert rule.wait_answered() != INVALID_TRANSACTION_TIMEOUT, "the broker said something else"


def test_a_held_answer_was_given_and_comes_when_it_is_released(bound, proxied_broker):
    rule = proxied_broker.proxy.add(Rule("InitProducerId", "hold_answer"))
    bound.producer.list_topics(timeout=30)  # or its connection may take the second as well
    with pytest.raises(KafkaException) as raised:
        bound.producer.init_transactions(1)
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
    assert rule.answered.is_set()
    rule.release()
    bound.producer.init_transactions(30)
    bound.transact(b"after")


def test_commit_and_abort_are_told_apart(bound, proxied_broker):
    commits = proxied_broker.proxy.add(Rule("EndTxn", "watch", commits=True, times=ALWAYS))
    bound.producer.init_transactions(30)
    bound.transact(b"one")
    assert commits.hits == 1
    proxied_broker.proxy.remove(commits)
    aborts = proxied_broker.proxy.add(Rule("EndTxn", "watch", commits=False, times=ALWAYS))
    bound.transact(b"two")
    assert aborts.hits == 0
    bound.transact(b"three", commit=False)
    assert aborts.hits == 1


def test_requests_are_counted_anew_in_each_transaction(bound, proxied_broker):
    third = proxied_broker.proxy.add(Rule("Produce", "watch", nth=3, after="EndTxn"))
    bound.producer.init_transactions(30)
    bound.transact(b"1", b"2")
    bound.transact(b"1", b"2")
    assert not third.hit.is_set(), "the third of all is the first of the second transaction"
    bound.transact(b"1", b"2", b"3", b"4")
    bound.transact(b"1", b"2", b"3", b"4")
    assert third.hits == 1


def test_what_is_discarded_is_never_delivered(bound, proxied_broker):
    rule = proxied_broker.proxy.add(Rule("InitProducerId", "hold"))
    with pytest.raises(KafkaException):
        bound.producer.init_transactions(1)
    rule.wait_hit()
    rule.discard()
    bound.producer.init_transactions(30)
    assert not rule.released.is_set()
    bound.transact(b"after")


def test_a_rule_for_one_broker_leaves_the_others_alone(bound, proxied_broker, sandbox):
    (broker,) = sandbox.kafka.brokers
    ours = proxied_broker.proxy.add(Rule("*", "watch", port=broker.proxy_target_port, times=ALWAYS))
    other = proxied_broker.proxy.add(Rule("*", "drop", port=NEVER, times=ALWAYS))
    bound.producer.init_transactions(30)
    bound.transact(b"one")
    assert ours.hits > 3
    assert other.hits == 0
    assert proxied_broker.proxy.cut(port=NEVER) == 0
    assert proxied_broker.proxy.cut(port=broker.proxy_target_port) > 0


def test_a_refused_produce_is_an_error_of_its_record_and_the_next_one_is_taken(
    sandbox, proxied_broker, unique
):
    topic = unique("refused")
    sandbox.create_topic(topic)
    rule = proxied_broker.proxy.add(Rule("Produce", "refuse", code=KafkaError.INVALID_RECORD))
    producer = Producer({"bootstrap.servers": proxied_broker.proxied})
    told: list[int | None] = []
    for _ in range(2):
        producer.produce(
            topic,
            b"value",
            on_delivery=lambda error, _message: told.append(error.code() if error else None),
        )
        assert producer.flush(30) == 0
    assert rule.hits == 1
    assert told == [KafkaError.INVALID_RECORD, None]
