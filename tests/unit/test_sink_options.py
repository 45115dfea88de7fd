"""Options of the sink: which setting or property of the client each one is."""

import pytest

from hapax.core.errors import ConfigurationError
from hapax.engines.spark.dataframe.sink import SinkOptions
from hapax.spark import settings_of

SERVERS = "kafka.bootstrap.servers"
GIVEN = {"checkpointLocation": "/c", "app": "a", "topic": "t", SERVERS: "k:1"}


def read(**kafka: str):
    named = {f"kafka.{name.replace('_', '.')}": value for name, value in kafka.items()}
    return settings_of(SinkOptions.parse(GIVEN | named))


def problems(given: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigurationError) as refused:
        settings_of(SinkOptions.parse(given))
    return refused.value.problems


def test_what_spark_users_type_for_kafka_is_a_setting_or_a_property_of_the_client(monkeypatch):
    monkeypatch.setenv("HAPAX_KAFKA__PROPERTIES", '{"linger.ms": 1, "client.rack": "r"}')
    monkeypatch.setenv("HAPAX_KAFKA__SECURITY__PASSWORD", "p")
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "u"}
    found = read(linger_ms="5", max_request_size="9000", transaction_timeout_ms="45000", **login)
    assert found.transaction.timeout_ms == 45_000
    security = found.kafka.security
    assert (security.protocol, security.sasl_mechanism) == ("sasl_plaintext", "PLAIN")
    assert (security.username, found.output.topic, found.app) == ("u", "t", "a")
    properties = {"linger.ms": "5", "message.max.bytes": "9000", "client.rack": "r"}
    assert found.kafka.properties == properties


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("kafka.acks", "an output counts only when all in-sync replicas have it"),
        ("kafka.delivery.timeout.ms", "it follows from HAPAX_TRANSACTION__TIMEOUT"),
        ("kafka.group.id", "use HAPAX_APP"),
        ("kafka.ssl.truststore.location", "use HAPAX_KAFKA__SECURITY__CA_FILE, PEM"),
        ("kafka.ssl.keystore.location", "use HAPAX_KAFKA__SECURITY__CERTIFICATE_FILE and KEY_F"),
        ("kafka.sasl.jaas.config", "USERNAME and HAPAX_KAFKA__SECURITY__PASSWORD, in the driver"),
        ("kafka.sasl.oauthbearer.extensions", "use HAPAX_KAFKA__PROPERTIES, in the driver's env"),
        ("kafka.compresion.type", "No such configuration property: .*mean compression.type?"),
        ("kafka.max.block.ms", "an option kafka.… or a setting: No such configuration property"),
        ("max_inline_bytes", "did you mean maxInlineBytes?"),
        ("inlineBytesMax", "did you mean maxInlineBytes?"),
        ("spool", "did you mean spoolLocation?"),
        ("bootstrap.servers", f"did you mean {SERVERS}?"),
        ("includeHeaders", "is unknown: there are checkpointLocation, app, topic, kafka."),
        ("kafka.transaction.timeout.ms", "transactiontimeout sets HAPAX_TRANSACTION__TIMEOUT, as"),
        ("maxInlineBytes", "option maxInlineBytes=geheim is no number of bytes"),
    ],
)
def test_what_is_refused_names_what_to_use_and_no_secret(name, complaint):
    twice = {"transactionTimeout": "1s"} if "transaction" in name else {}
    (said,) = problems(GIVEN | twice | {name: "geheim"})
    assert all(part in said for part in complaint.split(".*"))
    assert name == "maxInlineBytes" or "geheim" not in said


def test_what_is_missing_is_named_as_an_option_and_as_a_variable():
    said = problems({"checkpointLocation": "/c"})
    names = ["app", SERVERS, "topic"]
    assert [one.partition(", and HAPAX_")[0] for one in said] == [
        f"option {name} is missing" for name in names
    ]
    (said_,) = problems(GIVEN | {"checkpointLocation": ""})
    assert said_.startswith("option checkpointLocation is missing")


def test_a_wrong_value_is_said_of_the_option_that_has_it(monkeypatch):
    monkeypatch.setenv("HAPAX_OUTPUT__PARTITIONER", "none")
    environment, option = sorted(problems(GIVEN | {"transactionTimeout": "9"}))
    assert environment.startswith('HAPAX_OUTPUT__PARTITIONER="none": choose one of')
    assert option.startswith('option transactionTimeout="9": the unit is missing')
