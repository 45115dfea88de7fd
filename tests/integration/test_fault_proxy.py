"""The fault proxy does what its rules say, and loops that do not withstand its faults."""

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from hapax.sandbox import SandboxTopic
from tests.kit.faults import Rule
from tests.kit.naive import (
    AtLeastOnce,
    PlainTransactions,
    Route,
    SetNxThenProcess,
    WithoutRewind,
)
from tests.kit.proxy import FaultProxy, ProxiedBroker
from tests.kit.topics import committed, produce, read_back
from tests.kit.waiting import await_

# -- The fault proxy does what its rules say, to a real client in front of a real broker ---

MESSAGE_TOO_LARGE = 10
INVALID_TRANSACTION_TIMEOUT = 50


@pytest.fixture
def topic(sandbox, unique):
    name = unique("proxied")
    sandbox.create_topic(name, config={"max.message.bytes": "1000"})
    return name


class Writer:
    """A producer that knows what became of each value it wrote."""

    def __init__(self, bootstrap: str, topic: str, **settings: str | int | bool) -> None:
        self.topic = topic
        self.outcomes: dict[bytes, KafkaError | None] = {}
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 0,
                "linger.ms": 0,
                "socket.timeout.ms": 1000,
                "retry.backoff.ms": 5,
                "reconnect.backoff.ms": 5,
                "reconnect.backoff.max.ms": 100,
                "enable.idempotence": True,
                "metadata.recovery.strategy": "none",
                **settings,
            }
        )

    def write(self, value: bytes) -> KafkaError | None:
        self.producer.produce(
            self.topic,
            value,
            on_delivery=lambda error, _: self.outcomes.__setitem__(value, error),
        )
        assert self.producer.flush(30) == 0
        return self.outcomes[value]


def values(broker: ProxiedBroker, topic: str) -> list[bytes | None]:
    return [record.value for record in read_back(broker.direct, topic)]


def test_without_a_rule_everything_passes(proxied_broker, topic):
    writer = Writer(proxied_broker.proxied, topic)
    written = [b"%d" % number for number in range(20)]
    assert [writer.write(value) for value in written] == [None] * 20
    assert values(proxied_broker, topic) == written
    assert proxied_broker.proxy.seen("Produce") == 20


@pytest.mark.long
def test_every_broker_of_a_cluster_is_reached_through_a_proxy_only(cluster):
    with FaultProxy.before(cluster) as proxy:
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap, "log_level": 0})
        named = [f"{one.host}:{one.port}" for one in admin.list_topics(timeout=30).brokers.values()]
    assert sorted(named) == sorted(proxy.bootstrap.split(","))
    assert len(named) == 3


@pytest.mark.parametrize(
    ("action", "reaches_the_broker"),
    [
        ("drop", False),
        ("reset_before", False),
        ("reset_after", True),
        ("mute_after", True),
    ],
)
def test_a_client_that_gets_no_answer_sends_its_request_again(
    proxied_broker, topic, action, *, reaches_the_broker
):
    writer = Writer(proxied_broker.proxied, topic)
    rule = proxied_broker.proxy.add(Rule("Produce", action))
    assert writer.write(b"once") is None
    assert rule.hits == 1
    assert rule.answered.is_set() is reaches_the_broker
    assert rule.error_code == (0 if reaches_the_broker else None)
    assert proxied_broker.proxy.seen("Produce") == 2
    assert values(proxied_broker, topic) == [b"once"]


def test_a_delayed_request_is_answered_late_and_sent_once(proxied_broker, topic):
    writer = Writer(proxied_broker.proxied, topic)
    rule = proxied_broker.proxy.add(Rule("Produce", "delay", delay_ms=300))
    assert writer.write(b"late") is None
    assert rule.wait_answered() == 0
    assert proxied_broker.proxy.seen("Produce") == 1


def test_a_held_request_is_delivered_after_its_client_has_given_up(proxied_broker, topic):
    writer = Writer(
        proxied_broker.proxied, topic, **{"message.timeout.ms": 500, "enable.idempotence": False}
    )
    rule = proxied_broker.proxy.add(Rule("Produce", "hold"))
    error = writer.write(b"late")
    assert error is not None
    assert error.code() == KafkaError._MSG_TIMED_OUT
    proxied_broker.proxy.cut()
    assert values(proxied_broker, topic) == []
    assert not rule.answered.is_set()

    rule.release()
    assert rule.wait_answered() == 0
    assert values(proxied_broker, topic) == [b"late"]


def test_what_is_held_when_the_proxy_closes_is_never_delivered(sandbox, proxied_broker, topic):
    writer = Writer(
        proxied_broker.proxied, topic, **{"message.timeout.ms": 500, "enable.idempotence": False}
    )
    rule = proxied_broker.proxy.add(Rule("Produce", "hold", times=100))
    assert writer.write(b"never") is not None
    proxied_broker.proxy.close()
    assert rule.hits >= 1
    assert values(proxied_broker, topic) == []


def test_a_rule_strikes_the_nth_request_of_one_client(proxied_broker, topic):
    mine = Writer(proxied_broker.proxied, topic, **{"client.id": "mine"})
    other = Writer(proxied_broker.proxied, topic, **{"client.id": "other"})
    rule = proxied_broker.proxy.add(
        Rule("Produce", "reset_before", nth=2, times=2, client_id="mine")
    )
    hits = []
    for writer, value in ((mine, b"1"), (other, b"2"), (other, b"3"), (mine, b"4"), (mine, b"5")):
        assert writer.write(value) is None
        hits.append(rule.hits)
    assert hits == [0, 0, 0, 2, 2]
    assert values(proxied_broker, topic) == [b"1", b"2", b"3", b"4", b"5"]


def test_a_cleared_rule_strikes_no_more(proxied_broker, topic):
    rule = proxied_broker.proxy.add(Rule("Produce", "drop", times=1000))
    proxied_broker.proxy.clear()
    assert Writer(proxied_broker.proxied, topic).write(b"free") is None
    assert rule.hits == 0


def test_cut_resets_the_connections_of_the_client_that_is_named(proxied_broker, topic):
    writer = Writer(proxied_broker.proxied, topic, **{"client.id": "cut"})
    assert writer.write(b"before") is None
    assert proxied_broker.proxy.cut("somebody else") == 0
    assert proxied_broker.proxy.cut("cut") >= 1
    assert writer.write(b"after") is None
    assert values(proxied_broker, topic) == [b"before", b"after"]


@pytest.mark.parametrize("action", ["reset_before", "reset_after", "drop", "mute_after", "hold"])
def test_a_request_whose_answer_never_went_back_is_known(proxied_broker, topic, action):
    rule = proxied_broker.proxy.add(Rule("Produce", action, nth=2, client_id="asking"))
    writer = Writer(proxied_broker.proxied, topic, **{"client.id": "asking"})
    assert writer.write(b"answered") is None
    assert "Produce" not in proxied_broker.proxy.unanswered("asking")
    assert writer.write(b"sent twice") is None
    rule.discard()
    await_(lambda: "Produce" in proxied_broker.proxy.unanswered("asking"))
    assert proxied_broker.proxy.unanswered("asking").count("Produce") == 1
    assert proxied_broker.proxy.unanswered("another") == []


def test_while_offline_nothing_passes(proxied_broker, topic):
    writer = Writer(proxied_broker.proxied, topic)
    impatient = Writer(proxied_broker.proxied, topic, **{"message.timeout.ms": 1000})
    assert writer.write(b"before") is None
    with proxied_broker.proxy.offline():
        assert impatient.write(b"meanwhile") is not None
    assert writer.write(b"after") is None
    assert values(proxied_broker, topic) == [b"before", b"after"]


def test_the_error_in_a_produce_answer_is_read(proxied_broker, topic):
    rule = proxied_broker.proxy.add(Rule("Produce", "delay"))
    error = Writer(proxied_broker.proxied, topic).write(b"x" * 5000)
    assert error is not None
    assert rule.wait_answered() == error.code() == MESSAGE_TOO_LARGE


def test_the_error_in_an_init_producer_id_answer_is_read(proxied_broker, topic, unique):
    rule = proxied_broker.proxy.add(Rule("InitProducerId", "delay"))
    settings = {"transaction.timeout.ms": 2_000_000_000}
    writer = Writer(proxied_broker.proxied, topic, **settings, **{"transactional.id": unique("tx")})
    with pytest.raises(KafkaException):
        writer.producer.init_transactions(30)
    assert rule.wait_answered() == INVALID_TRANSACTION_TIMEOUT


def test_a_rule_for_an_unknown_api_is_refused():
    with pytest.raises(AssertionError, match="no API is called Endtxn"):
        Rule("Endtxn", "hold")


# -- The controls: faults that are real, shown on loops that do not withstand them ---------

INVALID_PRODUCER_EPOCH = 47
TEN = [b"%d" % number for number in range(10)]


@pytest.fixture
def route(sandbox, unique):
    source, target = unique("source"), unique("target")
    sandbox.create_topics(SandboxTopic(source), SandboxTopic(target))
    produce(sandbox.bootstrap_servers, source, *TEN)
    return Route(sandbox.bootstrap_servers, source, target, unique("app"))


def outputs(route: Route) -> list[bytes | None]:
    """Return what a read_committed reader sees."""
    return [record.value for record in read_back(route.bootstrap, route.target)]


def progress(route: Route) -> int | None:
    return committed(route.bootstrap, route.app, route.source)[0]


def crash_after(step: str, loop: AtLeastOnce) -> None:
    records = loop.take(10)
    assert len(records) == 10
    assert any(done == step for done in loop.batch(records))
    loop.close()


def test_plain_transactions_are_right_as_long_as_nothing_is_late(route):
    loop = PlainTransactions(route)
    records = loop.take(10)
    loop.abort(records)
    loop.process(loop.take(10))
    loop.close()
    assert outputs(route) == TEN
    assert progress(route) == 10


@pytest.mark.row("S-K1")
@pytest.mark.parametrize("renewed", [False, True])
def test_a_late_abort_makes_plain_transactions_lose_records_silently_unless_the_epoch_is_new(
    route, proxied_broker, *, renewed
):
    loop = PlainTransactions(route._replace(bootstrap=proxied_broker.proxied))
    late = proxied_broker.proxy.add(Rule("EndTxn", "hold"))
    loop.abort(loop.take(10))  # the client sends a second EndTxn by itself and is content
    assert late.hit.is_set()
    if renewed:
        loop.renew()

    steps = loop.batch(loop.take(10))
    assert next(steps) == "sent"
    late.release()
    assert late.wait_answered() == (INVALID_PRODUCER_EPOCH if renewed else 0)
    assert list(steps) == ["progressed", "committed"]  # every call says ok
    loop.close()

    assert progress(route) == 10
    assert outputs(route) == (TEN if renewed else [])


@pytest.mark.row("S-K1")
@pytest.mark.parametrize("renewed", [False, True])
def test_late_offsets_move_the_progress_of_plain_transactions_back_unless_the_epoch_is_new(
    route, proxied_broker, *, renewed
):
    loop = PlainTransactions(route._replace(bootstrap=proxied_broker.proxied))
    late = proxied_broker.proxy.add(Rule("TxnOffsetCommit", "hold"))
    loop.process(loop.take(5))
    assert late.hit.is_set()
    if renewed:
        loop.renew()

    steps = loop.batch(loop.take(4))
    assert [next(steps), next(steps)] == ["sent", "progressed"]
    late.release()
    assert late.wait_answered() == (INVALID_PRODUCER_EPOCH if renewed else 0)
    assert list(steps) == ["committed"]
    loop.close()

    assert outputs(route) == TEN[:9]
    assert progress(route) == (9 if renewed else 5)


def test_transactions_without_rewind_lose_an_aborted_batch(route):
    loop = WithoutRewind(route)
    loop.abort(loop.take(4))
    loop.process(loop.take(6))
    loop.close()
    assert outputs(route) == TEN[4:]
    assert progress(route) == 10


def test_at_least_once_doubles_what_a_crash_leaves_uncommitted(route):
    crash_after("sent", AtLeastOnce(route))
    successor = AtLeastOnce(route)
    successor.process(successor.take(10))
    successor.close()
    assert outputs(route) == TEN + TEN


def test_set_nx_then_process_loses_what_a_crash_leaves_claimed(route, redis_url):
    crash_after("claimed", SetNxThenProcess(route, redis_url))
    successor = SetNxThenProcess(route, redis_url)
    successor.process(successor.take(10))
    successor.close()
    assert progress(route) == 10
    assert outputs(route) == []
