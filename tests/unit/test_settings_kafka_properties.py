import json

import pytest

from hapax.settings import load_settings
from hapax.settings.properties import refusal
from tests.unit.test_settings import REQUIRED
from tests.unit.test_settings_problems import problems

VARIABLE = "HAPAX_KAFKA__PROPERTIES"

REFUSED_NAMES = """
bootstrap.servers metadata.broker.list
enable.auto.commit auto.commit.enable auto.commit.interval.ms enable.auto.offset.store
offset.store.method auto.offset.reset isolation.level enable.partition.eof check.crcs
enable.idempotence enable.gapless.guarantee acks request.required.acks retries
message.send.max.retries max.in.flight max.in.flight.requests.per.connection queuing.strategy
message.timeout.ms delivery.timeout.ms transaction.timeout.ms transactional.id
group.id group.instance.id group.protocol session.timeout.ms heartbeat.interval.ms
max.poll.interval.ms partition.assignment.strategy partitioner partitioner_cb
metadata.recovery.strategy debug logger log_level log_cb log.queue log.connection.close
log.thread.name
error_cb stats_cb throttle_cb oauth_cb dr_cb dr_msg_cb rebalance_cb offset_commit_cb
oauthbearer_token_refresh_cb ssl.certificate.verify_cb ssl_engine_callback_data on_delivery
on_commit opaque default_topic_conf default.topic.config delivery.report.only.error
plugin.library.paths interceptors ssl.engine.location ssl.engine.id ssl.providers
test.mock.num.brokers
security.protocol sasl.mechanism sasl.mechanisms sasl.username sasl.password
sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.kerberos.keytab
enable.sasl.oauthbearer.unsecure.jwt https.ca.location ssl.ca.location ssl.certificate.location
ssl.key.location ssl.key.password ssl.key.pem ssl.certificate.pem ssl.ca.pem https.ca.pem
ssl.keystore.location ssl.keystore.password
"""

ACCEPTED_NAMES = """
linger.ms batch.size batch.num.messages compression.type client.rack client.id fetch.min.bytes
fetch.max.bytes queued.min.messages socket.timeout.ms socket.keepalive.enable
reconnect.backoff.ms retry.backoff.ms statistics.interval.ms message.max.bytes
topic.metadata.refresh.interval.ms ssl.cipher.suites ssl.endpoint.identification.algorithm
sasl.oauthbearer.extensions group.remote.assignor
"""


def test_each_property_that_breaks_the_promise_or_has_its_setting_is_refused():
    # librdkafka strips a leading "topic.": topic.acks is acks.
    prefixes = ("", "topic.", "topic.topic.")
    names = [prefix + name for prefix in prefixes for name in REFUSED_NAMES.split()]
    found = problems(**{VARIABLE: json.dumps(dict.fromkeys(names, "1"))})
    refused = sorted(problem.partition(" is refused: ")[0] for problem in found)
    assert refused == sorted(f"{VARIABLE}: {name}" for name in names)


def test_properties_that_only_tune_are_passed_on():
    given = dict.fromkeys(ACCEPTED_NAMES.split(), "1")
    settings = load_settings(REQUIRED | {VARIABLE: json.dumps(given)})
    assert settings.kafka.properties == given


def test_values_are_passed_on_as_the_client_writes_them():
    text = '{"a": 5, "b": 0.50, "c": true, "d": false, "e": "x y"}'
    properties = load_settings(REQUIRED | {VARIABLE: text}).kafka.properties
    assert properties == {"a": "5", "b": "0.50", "c": "true", "d": "false", "e": "x y"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("linger.ms=5", "write a JSON object"),
        ("[]", "write a JSON object"),
        ("5", "write a JSON object"),
        ("[" * 100_000, "write a JSON object"),
        ('{"linger.ms": null}', "linger.ms must be a text on one line"),
        ('{"linger.ms": [5]}', "linger.ms must be a text on one line"),
        ('{"linger.ms": {"a": 5}}', "linger.ms must be a text on one line"),
        ('{"client.id": "a\\u0000b"}', "client.id must be a text on one line"),
        ('{"linger.ms": 5, "linger.ms": 6}', "linger.ms is given more than once"),
        ('{"Acks": 0}', '"Acks" is not the name of a librdkafka property'),
        ('{"acks ": 0}', '"acks " is not the name of a librdkafka property'),
    ],
)
def test_what_is_no_object_of_plain_values_is_refused(text, reason):
    (problem,) = problems(**{VARIABLE: text})
    assert problem.startswith(f"{VARIABLE}: {reason}")


def test_a_refused_property_names_the_setting_to_use():
    assert refusal("ssl.ca.location") == "use HAPAX_KAFKA__SECURITY__CA_FILE"
    assert refusal("group.id") == "use HAPAX_APP"
    assert refusal("linger.ms") is None
