import socket
import sys

import pytest

from hapax.core.errors import ConfigurationError, ExitCode
from hapax.settings import VARIABLES, load_settings, load_with_origins
from tests.kit.commands import output_of

REQUIRED = {
    "HAPAX_APP": "orders",
    "HAPAX_KAFKA__BOOTSTRAP_SERVERS": "kafka-0:9092,kafka-1:9092",
    "HAPAX_INPUT__TOPICS": "in-a, in-b",
    "HAPAX_OUTPUT__TOPIC": "out",
    "POD_NAME": "orders-0",
}

ELSEWHERE = {
    "HAPAX_APP": "billing",
    "HAPAX_ENGINE": "worker",
    "HAPAX_FAST": "off",
    "HAPAX_INSTANCE": "billing-7",
    "HAPAX_GUARANTEE": "at_least_once",
    "HAPAX_TRANSFORM": "shop.billing:transform",
    "HAPAX_KAFKA__BOOTSTRAP_SERVERS": "[::1]:9092,kafka.example:9093",
    "HAPAX_KAFKA__PROPERTIES": '{"client.rack": "a", "linger.ms": "5"}',
    "HAPAX_KAFKA__SECURITY__PROTOCOL": "sasl_ssl",
    "HAPAX_KAFKA__SECURITY__SASL_MECHANISM": "SCRAM-SHA-512",
    "HAPAX_KAFKA__SECURITY__USERNAME": "billing",
    "HAPAX_KAFKA__SECURITY__CA_FILE": "/tls/ca.pem",
    "HAPAX_KAFKA__SECURITY__CERTIFICATE_FILE": "/tls/own.pem",
    "HAPAX_KAFKA__SECURITY__KEY_FILE": "/tls/own.key",
    "HAPAX_KAFKA__SECURITY__OAUTH_TOKEN_URL": "https://login.example/token",
    "HAPAX_KAFKA__SECURITY__OAUTH_CLIENT_ID": "client",
    "HAPAX_KAFKA__SECURITY__OAUTH_TOKEN_FILE": "/var/run/kafka/token",
    "HAPAX_KAFKA__SECURITY__OAUTH_CA_FILE": "/tls/login.pem",
    "HAPAX_KAFKA__SECURITY__OAUTH_SCOPE": "kafka",
    "HAPAX_INPUT__TOPICS": "bills",
    "HAPAX_INPUT__START": "2026-11-01T00:00:00Z",
    "HAPAX_INPUT__END": "7d",
    "HAPAX_OUTPUT__TOPIC": "paid",
    "HAPAX_INPUT__FORMAT": "avro",
    "HAPAX_INPUT__READER_SCHEMA": "/schemas/bill.avsc",
    "HAPAX_OUTPUT__PARTITIONER": "round_robin",
    "HAPAX_OUTPUT__TIMESTAMP": "now",
    "HAPAX_OUTPUT__FORMAT": "json-schema",
    "HAPAX_OUTPUT__SCHEMA": "/schemas/paid.json",
    "HAPAX_REGISTRY__URL": "https://schemas-0.example,https://schemas-1.example",
    "HAPAX_REGISTRY__CA_FILE": "/tls/schemas.pem",
    "HAPAX_REGISTRY__CERTIFICATE_FILE": "/tls/reader.pem",
    "HAPAX_REGISTRY__KEY_FILE": "/tls/reader.key",
    "HAPAX_REGISTRY__TIMEOUT": "2s",
    "HAPAX_REGISTRY__CACHE": "/var/cache/schemas",
    "HAPAX_REGISTRY__GRACE": "5m",
    "HAPAX_REGISTRY__AFTER_GRACE": "dead-letter",
    "HAPAX_REGISTRY__SUBJECTS": "topic-record",
    "HAPAX_REGISTRY__AUTO_REGISTER": "true",
    "HAPAX_REGISTRY__PLACEMENT": "header",
    "HAPAX_DEAD_LETTER__TOPIC": "bills-dead",
    "HAPAX_DEAD_LETTER__RATE_MAX": "0.25",
    "HAPAX_DEAD_LETTER__RECORDS_MIN": "7",
    "HAPAX_DEDUP__CA_FILE": "/tls/redis.pem",
    "HAPAX_DEDUP__CERTIFICATE_FILE": "/tls/hapax.pem",
    "HAPAX_DEDUP__KEY_FILE": "/tls/hapax.key",
    "HAPAX_DEDUP__ID": "header:x:id,json:/order/id~1x,key",
    "HAPAX_DEDUP__TTL": "7d",
    "HAPAX_DEDUP__ON_OUTAGE": "pass",
    "HAPAX_DEDUP__TIMEOUT": "500ms",
    "HAPAX_TRANSACTION__INTERVAL": "250ms",
    "HAPAX_TRANSACTION__RECORDS_MAX": "500",
    "HAPAX_TRANSACTION__BYTES_MAX": "1MB",
    "HAPAX_TRANSACTION__TIMEOUT": "12s",
    "HAPAX_GROUP__MEMBERSHIP": "dynamic",
    "HAPAX_GROUP__PROTOCOL": "consumer",
    "HAPAX_GROUP__SESSION_TIMEOUT": "45s",
    "HAPAX_GROUP__MAX_POLL_INTERVAL": "10m",
    "HAPAX_SPARK__MASTER": "spark://spark:7077",
    "HAPAX_SPARK__PROPERTIES": '{"spark.executor.memory": "4g"}',
    "HAPAX_SPARK__SHIP": "/opt/prices,rules.zip",
    "HAPAX_SPARK__EXECUTOR_TIMEOUT": "2m",
    "HAPAX_SPARK__LANES": "8",
    "HAPAX_SPARK__RANGE_INTERVAL": "5s",
    "HAPAX_SPARK__CHECKPOINT": "s3a://checkpoints/daily",
    "HAPAX_SPARK__PUBLISH": "parallel",
    "HAPAX_SPARK__TRIGGER_INTERVAL": "10s",
    "HAPAX_SPARK__BATCH_RECORDS_MAX": "5000",
    "HAPAX_SPARK__JARS": "/opt/jars",
    "HAPAX_RETRY__ATTEMPTS": "5",
    "HAPAX_RETRY__BACKOFF": "20ms",
    "HAPAX_RETRY__LATER_ATTEMPTS": "3",
    "HAPAX_RETRY__DELAY": "5s",
    "HAPAX_RETRY__DELAY_MAX": "10m",
    "HAPAX_STATE__DIR": "/var/lib/hapax",
    "HAPAX_STATE__TOPIC": "orders-changelog",
    "HAPAX_STATE__SIZE_MAX": "4GiB",
    "HAPAX_STOP_AFTER__RECORDS": "100",
    "HAPAX_STOP_AFTER__AT_END": "true",
    "HAPAX_STOP_AFTER__OPEN": "leave",
    "HAPAX_STOP_AFTER__OPEN_TIMEOUT": "30m",
    "HAPAX_SHUTDOWN__TIMEOUT": "20s",
    "HAPAX_CALL__CONCURRENCY": "16",
    "HAPAX_CALL__ORDER": "none",
    "HAPAX_CALL__RECORDS_MAX": "100",
    "HAPAX_CALL__OUTPUT_BYTES_MAX": "1MiB",
    "HAPAX_CALL__TIMEOUT": "5s",
    "HAPAX_WATCHDOG__TIMEOUT": "90s",
    "HAPAX_TELEMETRY__PORT": "0",
    "HAPAX_TELEMETRY__ADDRESS": "::1",
    "HAPAX_TELEMETRY__LOG_LEVEL": "debug",
    "HAPAX_TELEMETRY__LOG_FORMAT": "json",
    "HAPAX_TELEMETRY__LAG_INTERVAL": "30s",
    "HAPAX_TELEMETRY__READERS": "ledger,search:eu 1",
    "HAPAX_TELEMETRY__RUNBOOKS_URL": "https://runbooks.example/hapax",
    "HAPAX_TELEMETRY__TRACING": "true",
}

PIPELINE = {"HAPAX_SPARK__DATAFRAME": "pipeline:daily"}
LATER = {
    "HAPAX_RETRY__TOPIC": "orders-again",
    "HAPAX_RETRY__LATER": "TimeoutError,shop.prices.Busy",
}
TARGET = {
    "HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS": "target.example:9093",
    "HAPAX_OUTPUT__KAFKA__PROPERTIES": '{"linger.ms": "7"}',
    "HAPAX_OUTPUT__KAFKA__SECURITY__PROTOCOL": "sasl_ssl",
    "HAPAX_OUTPUT__KAFKA__SECURITY__SASL_MECHANISM": "SCRAM-SHA-256",
    "HAPAX_OUTPUT__KAFKA__SECURITY__USERNAME": "writer",
    "HAPAX_OUTPUT__KAFKA__SECURITY__CA_FILE": "/tls/target-ca.pem",
    "HAPAX_OUTPUT__KAFKA__SECURITY__CERTIFICATE_FILE": "/tls/target.pem",
    "HAPAX_OUTPUT__KAFKA__SECURITY__KEY_FILE": "/tls/target.key",
    "HAPAX_OUTPUT__KAFKA__SECURITY__OAUTH_TOKEN_URL": "https://login.example/target",
    "HAPAX_OUTPUT__KAFKA__SECURITY__OAUTH_TOKEN_FILE": "/var/run/kafka/target",
    "HAPAX_OUTPUT__KAFKA__SECURITY__OAUTH_CLIENT_ID": "writer",
    "HAPAX_OUTPUT__KAFKA__SECURITY__OAUTH_CA_FILE": "/tls/target-login.pem",
    "HAPAX_OUTPUT__KAFKA__SECURITY__OAUTH_SCOPE": "write",
}
MSK = {"HAPAX_KAFKA__SECURITY__OAUTH_MSK_REGION": "eu-central-1"}
"""Each goes with none of the settings of records, of one cluster, or of tokens."""

SECRETS = {
    "HAPAX_KAFKA__SECURITY__PASSWORD",
    "HAPAX_KAFKA__SECURITY__KEY_PASSWORD",
    "HAPAX_KAFKA__SECURITY__OAUTH_CLIENT_SECRET",
    "HAPAX_OUTPUT__KAFKA__SECURITY__PASSWORD",
    "HAPAX_OUTPUT__KAFKA__SECURITY__KEY_PASSWORD",
    "HAPAX_OUTPUT__KAFKA__SECURITY__OAUTH_CLIENT_SECRET",
    "HAPAX_DEDUP__REDIS_URL",
    "HAPAX_DEDUP__KEY_PASSWORD",
    "HAPAX_REGISTRY__PASSWORD",
    "HAPAX_REGISTRY__TOKEN",
    "HAPAX_REGISTRY__OAUTH_CLIENT_SECRET",
    "HAPAX_REGISTRY__KEY_PASSWORD",
}

OF_TOKENS = (
    "OAUTH_TOKEN_URL",
    "OAUTH_CLIENT_ID",
    "OAUTH_SCOPE",
    "LOGICAL_CLUSTER",
    "IDENTITY_POOL",
)
LOGINS = {f"HAPAX_REGISTRY__{name}" for name in ("USER", *OF_TOKENS)}
"""A request has one of them, and each needs a secret."""

MAY_HOLD_SECRETS = {
    "HAPAX_KAFKA__PROPERTIES",
    "HAPAX_KAFKA__SECURITY__OAUTH_TOKEN_URL",
    "HAPAX_OUTPUT__KAFKA__PROPERTIES",
    "HAPAX_OUTPUT__KAFKA__SECURITY__OAUTH_TOKEN_URL",
    "HAPAX_REGISTRY__OAUTH_TOKEN_URL",
    "HAPAX_SPARK__PROPERTIES",
}


def test_the_defaults_are_those_of_the_page():
    """A test of ``hapax config reference`` compares docs/settings.md with what VARIABLES say."""
    effective = load_settings(REQUIRED).effective()
    page = {each.name: each.default or "unset" for each in VARIABLES}
    assert effective == page | {"HAPAX_TRANSACTION__INTERVAL": "100ms"} | {
        "HAPAX_APP": "orders",
        "HAPAX_INSTANCE": "orders-0",
        "HAPAX_KAFKA__BOOTSTRAP_SERVERS": "kafka-0:9092,kafka-1:9092",
        "HAPAX_INPUT__TOPICS": "in-a,in-b",
        "HAPAX_OUTPUT__TOPIC": "out",
    }


def test_every_variable_is_read():
    effective = load_settings(ELSEWHERE | {"HAPAX_KAFKA__SECURITY__PASSWORD": "pw"}).effective()
    msk = {*MSK, "HAPAX_OUTPUT__KAFKA__SECURITY__OAUTH_MSK_REGION"}
    alone = PIPELINE.keys() | LATER.keys() | TARGET.keys() | LOGINS | msk
    assert effective.keys() == ELSEWHERE.keys() | SECRETS | alone
    assert {name: effective[name] for name in ELSEWHERE} == ELSEWHERE


def test_later_tries_and_a_pipeline_are_read():
    effective = load_settings(REQUIRED | LATER).effective()
    assert {name: effective[name] for name in LATER} == LATER
    spark = {"HAPAX_ENGINE": "spark", "HAPAX_SPARK__CHECKPOINT": "/checkpoints/daily"}
    assert load_settings(REQUIRED | spark | PIPELINE).spark.dataframe == "pipeline:daily"


def test_another_cluster_for_the_outputs_is_read():
    settings = load_settings(REQUIRED | TARGET | {"HAPAX_OUTPUT__KAFKA__SECURITY__PASSWORD": "pw"})
    effective = settings.effective()
    assert {name: effective[name] for name in TARGET} == TARGET
    assert settings.elsewhere
    assert settings.target.kafka.bootstrap_servers == "target.example:9093"
    assert settings.target.kafka.security.username == "writer"
    assert settings.kafka.security.username is None
    here = load_settings(REQUIRED)
    assert (here.elsewhere, here.target is here) == (False, True)


def test_what_is_shown_can_be_set_again():
    environ = ELSEWHERE | {"HAPAX_KAFKA__SECURITY__PASSWORD": "pw"}
    shown = {
        name: text for name, text in load_settings(environ).effective().items() if text != "unset"
    }
    assert load_settings(shown).effective() == load_settings(environ).effective()


def test_words_are_read_in_either_case():
    settings = load_settings(
        REQUIRED
        | {
            "HAPAX_TELEMETRY__LOG_LEVEL": "INFO",
            "HAPAX_STOP_AFTER__AT_END": "Yes",
            "HAPAX_KAFKA__SECURITY__PROTOCOL": "SASL_SSL",
            "HAPAX_KAFKA__SECURITY__SASL_MECHANISM": "plain",
            "HAPAX_KAFKA__SECURITY__USERNAME": "u",
            "HAPAX_KAFKA__SECURITY__PASSWORD": "p",
        }
    )
    assert settings.telemetry.log_level == "info"
    assert settings.stop_after.at_end is True
    assert settings.kafka.security.protocol == "sasl_ssl"
    assert settings.kafka.security.sasl_mechanism == "PLAIN"


@pytest.mark.parametrize(("text", "value"), [("0.25", 0.25), ("10%", 0.1), ("0", 0), ("100%", 1)])
def test_a_share_is_a_part_or_a_percentage(text, value):
    settings = load_settings(REQUIRED | {"HAPAX_DEAD_LETTER__RATE_MAX": text})
    assert settings.dead_letter.rate_max == pytest.approx(value)


def test_an_empty_variable_is_an_unset_one_and_blanks_around_a_value_are_dropped():
    empty = {each.name: "" for each in VARIABLES}
    assert load_settings(empty | REQUIRED) == load_settings(REQUIRED)
    assert load_settings(REQUIRED | {"HAPAX_APP": " orders\n"}).app == "orders"


def test_the_instance_is_the_pod_else_the_host():
    rest = {name: text for name, text in REQUIRED.items() if name != "POD_NAME"}
    named = rest | {"HOSTNAME": "host-1", "POD_NAME": "pod-1"}
    assert load_settings(named | {"HAPAX_INSTANCE": "me"}).instance == "me"
    assert load_settings(named).instance == "pod-1"
    assert load_settings(rest | {"HOSTNAME": "host-1"}).instance == "host-1"
    assert load_settings(rest).instance == socket.gethostname()


def test_it_is_told_where_each_value_is_from(tmp_path):
    secret = tmp_path / "redis"
    secret.write_text("redis://cache:6379/0\n")
    given_by = {"HAPAX_INPUT__TOPICS": "--input", "HAPAX_DEDUP__TTL": "--set"}
    environ = REQUIRED | {"HAPAX_DEDUP__REDIS_URL_FILE": str(secret)}
    origins = load_with_origins(environ, given_by)[1]
    assert origins.keys() == {variable.name for variable in VARIABLES}
    assert origins["HAPAX_APP"] == "environment"
    assert origins["HAPAX_DEDUP__REDIS_URL"] == "file"
    assert origins["HAPAX_INSTANCE"] == "default"
    assert origins["HAPAX_INPUT__TOPICS"] == "--input"
    assert origins["HAPAX_DEDUP__TTL"] == "default"


OURS, OF_ALL = "HAPAX_KAFKA__BOOTSTRAP_SERVERS", "KAFKA_BOOTSTRAP_SERVERS"


def test_brokers_that_other_programs_take_count_where_ours_are_absent_not_where_they_are_empty():
    rest = {name: text for name, text in REQUIRED.items() if name != OURS}
    settings, origins = load_with_origins(rest | {OF_ALL: " all:1 "})
    assert (settings.kafka.bootstrap_servers, origins[OURS]) == ("all:1", OF_ALL)
    settings, origins = load_with_origins(REQUIRED | {OF_ALL: "all:1"})
    assert (settings.kafka.bootstrap_servers, origins[OURS]) == (REQUIRED[OURS], "environment")
    for given, said in (
        ({OURS: "", OF_ALL: "all:1"}, f"{OURS} is not set: "),
        ({OF_ALL: ""}, f"{OURS} is not set: "),
        ({OF_ALL: "a b"}, f"{OURS} (from {OF_ALL}): each broker is written host:port"),
    ):
        with pytest.raises(ConfigurationError) as refusal:
            load_settings(rest | given)
        (problem,) = refusal.value.problems
        assert problem.startswith(said)


def test_configuration_errors_leave_with_their_exit_code():
    with pytest.raises(ConfigurationError) as refusal:
        load_settings({})
    assert refusal.value.exit_code is ExitCode.CONFIGURATION
    assert [problem.split(" ")[0] for problem in refusal.value.problems] == [
        "HAPAX_APP",
        "HAPAX_KAFKA__BOOTSTRAP_SERVERS",
        "HAPAX_INPUT__TOPICS",
        "HAPAX_OUTPUT__TOPIC",
    ]
    assert all("is not set" in problem for problem in refusal.value.problems)


def test_loading_settings_drags_in_nothing_slow() -> None:
    # A killed worker has two seconds to commit again, imports included.
    code = "import sys, hapax.settings\nprint(*{name.partition('.')[0] for name in sys.modules})"
    loaded = set(output_of([sys.executable, "-c", code]).split())
    assert "pydantic" in loaded
    slow = {"asyncio", "typer", "rich", "pydantic_settings", "confluent_kafka", "redis"}
    assert not loaded & slow


def test_every_variable_says_what_it_is():
    for variable in VARIABLES:
        assert variable.meaning.endswith("."), variable.name
        assert variable.form.allowed, variable.name
        assert variable.default is not None or variable.example, variable.name


def test_secrets_are_these_and_their_files_hide_no_other_variable():
    files = {variable.name: variable.file_name for variable in VARIABLES if variable.file_name}
    assert {variable.name for variable in VARIABLES if variable.form.secret} == SECRETS
    assert files.keys() == SECRETS | MAY_HOLD_SECRETS
    assert not set(files.values()) & {variable.name for variable in VARIABLES}


def test_on_spark_transactions_are_larger_unless_they_are_set():
    spark = REQUIRED | {"HAPAX_ENGINE": "Spark"}
    settings, origins = load_with_origins(spark)
    assert settings.transaction.interval_ms == 500
    assert settings.transaction.records_max == 50_000
    assert origins["HAPAX_TRANSACTION__INTERVAL"] == "default"
    own = load_settings(spark | {"HAPAX_TRANSACTION__RECORDS_MAX": "7"})
    assert own.transaction.records_max == 7


def test_what_differs_from_the_defaults_is_a_short_list_without_secrets():
    given = {**REQUIRED, "HAPAX_DEDUP__REDIS_URL": "redis://:hunter2@cache:6379/0"}
    given["HAPAX_TRANSACTION__INTERVAL"] = "100ms"  # the default, said aloud
    changed = load_settings({**given, "HAPAX_RETRY__ATTEMPTS": "5"}).changed()
    assert changed["HAPAX_RETRY__ATTEMPTS"] == "5"
    assert "HAPAX_TRANSACTION__INTERVAL" not in changed
    named = REQUIRED.keys() - {"POD_NAME"}
    assert changed.keys() == {
        *named, "HAPAX_INSTANCE", "HAPAX_DEDUP__REDIS_URL", "HAPAX_RETRY__ATTEMPTS",
    }  # fmt: skip
    assert "hunter2" not in str(changed)
