"""Options of the sink: which setting or property of the client each one is."""

from types import SimpleNamespace
from typing import Any

import pytest

from hapax.core.errors import ConfigurationError
from hapax.engines.spark.dataframe.sink import SinkOptions, SinkWriter
from hapax.spark import close_desks, register, settings_of

SERVERS = "kafka.bootstrap.servers"
GIVEN = {"checkpointLocation": "/c", "app": "a", "topic": "t", SERVERS: "k:1"}


def problems(given: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigurationError) as refused:
        settings_of(SinkOptions.parse(given))
    return refused.value.problems


def test_what_spark_users_type_for_kafka_is_a_setting_or_a_property_of_the_client(monkeypatch):
    monkeypatch.setenv("HAPAX_KAFKA__PROPERTIES", '{"linger.ms": 1, "client.rack": "r"}')
    monkeypatch.setenv("HAPAX_KAFKA__SECURITY__PASSWORD", "p")
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "linger.ms": "5"}
    given |= {"sasl.username": "u", "max.request.size": "9000", "transaction.timeout.ms": "45000"}
    options = GIVEN | {f"kafka.{name}": value for name, value in given.items()}
    found = settings_of(SinkOptions.parse(options))
    security = found.kafka.security
    assert (security.protocol, security.sasl_mechanism) == ("sasl_plaintext", "PLAIN")
    assert (security.username, found.output.topic, found.app) == ("u", "t", "a")
    properties = {"linger.ms": "5", "message.max.bytes": "9000", "client.rack": "r"}
    assert (found.kafka.properties, found.transaction.timeout_ms) == (properties, 45_000)


@pytest.mark.parametrize(
    "variables",
    [
        {"HAPAX_DEDUP__REDIS_URL": "redis://h/0", "HAPAX_TRANSFORM": "a:b"},
        {"HAPAX_SPARK__MASTER": "spark://h:7077", "HAPAX_ENGINE": "worker"},
        {"HAPAX_SPARK__DATAFRAME": "a:b", "HAPAX_SPARK__CHECKPOINT": "/other"},
        {"HAPAX_DEAD_LETTER__TOPIC": "dead", "HAPAX_OUTPUT__FORMAT": "json"},
    ],
)
def test_what_the_environment_says_of_a_service_is_nothing_to_a_job_of_ones_own(
    monkeypatch, variables
):
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    found = settings_of(SinkOptions.parse(GIVEN))
    assert (found.engine, found.dedup.redis_url, found.spark.checkpoint) == ("spark", None, "/c")


def test_queries_that_share_a_spool_location_have_a_folder_each():
    shared = [
        SinkOptions.parse(GIVEN | {"checkpointLocation": at, "spoolLocation": "/rows/"}).spool
        for at in ("/one", "/two", "/one/")
    ]
    assert shared[0] == shared[2] != shared[1]
    assert all(one.startswith("/rows/") for one in shared)


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


def test_what_is_missing_or_wrong_is_said_of_the_option_or_of_the_variable_that_has_it(monkeypatch):
    said = problems({"checkpointLocation": "/c"})
    missing = [f"option {name} is missing, and HAPAX" for name in ("app", SERVERS, "topic")]
    assert [one.partition("_")[0] for one in said] == missing
    (only,) = problems(GIVEN | {"checkpointLocation": ""})
    assert only.startswith("option checkpointLocation is missing")
    monkeypatch.setenv("HAPAX_OUTPUT__PARTITIONER", "none")
    environment, option = sorted(problems(GIVEN | {"transactionTimeout": "9"}))
    assert environment.startswith('HAPAX_OUTPUT__PARTITIONER="none": choose one of')
    assert option.startswith('option transactionTimeout="9": the unit is missing')


def test_what_cannot_be_removed_does_not_hide_why_a_task_failed():
    SinkWriter(None, SinkOptions.parse(GIVEN | {"spoolLocation": "nowhere://x"})).abort([None], 0)


def test_a_process_that_leaves_at_once_leaves_no_folder_of_its_desk(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    session: Any = SimpleNamespace(sparkContext=None, dataSource=SimpleNamespace(register=id))
    register(session)
    assert [*tmp_path.iterdir()]
    close_desks()
    assert not [*tmp_path.iterdir()]
