"""The fault proxy does what its rules say, to a real client in front of a real broker."""

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from tests.kit.faults import Rule
from tests.kit.proxy import FaultProxy, ProxiedBroker
from tests.kit.topics import read_back
from tests.kit.waiting import await_

MESSAGE_TOO_LARGE = 10


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
            self.topic, value, on_delivery=lambda error, _: self.outcomes.__setitem__(value, error)
        )
        assert self.producer.flush(30) == 0
        return self.outcomes[value]


def values(broker: ProxiedBroker, topic: str) -> list[bytes | None]:
    return [record.value for record in read_back(broker.direct, topic)]


@pytest.mark.long
def test_every_broker_of_a_cluster_is_reached_through_a_proxy_only(cluster):
    with FaultProxy.before(cluster) as proxy:
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap, "log_level": 0})
        named = [f"{one.host}:{one.port}" for one in admin.list_topics(timeout=30).brokers.values()]
    assert sorted(named) == sorted(proxy.bootstrap.split(","))
    assert len(named) == 3


@pytest.mark.parametrize(
    ("action", "reaches_the_broker"),
    [("drop", False), ("reset_before", False), ("reset_after", True), ("mute_after", True)],
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


def test_a_rule_for_an_unknown_api_is_refused():
    with pytest.raises(AssertionError, match="no API is called Endtxn"):
        Rule("Endtxn", "hold")
