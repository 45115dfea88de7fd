import pytest

from hapax.core.errors import ConfigurationError
from hapax.settings import load_settings
from tests.unit.test_settings import REQUIRED

SECURITY = "HAPAX_KAFKA__SECURITY__"


def problems(**environ: str) -> list[str]:
    with pytest.raises(ConfigurationError) as refusal:
        load_settings(REQUIRED | environ)
    return refusal.value.problems


@pytest.mark.parametrize(
    ("variable", "text", "reason"),
    [
        ("HAPAX_APP", "a b", "letters, digits, dots"),
        ("HAPAX_APP", "a" * 201, "1 to 200"),
        ("HAPAX_INSTANCE", "a/b", "letters, digits, dots"),
        ("HAPAX_ENGINE", "flink", "choose one of worker, spark"),
        ("HAPAX_GUARANTEE", "once", "choose one of exactly_once, at_least_once, at_most_once"),
        ("HAPAX_TRANSFORM", "shop.orders", "package.module:function"),
        ("HAPAX_TRANSFORM", "shop orders:f", "package.module:function"),
        ("HAPAX_TRANSFORM", "shop.class:f", "package.module:function"),
        ("HAPAX_INPUT__TOPICS", "a,,b", "an item of the list is empty"),
        ("HAPAX_INPUT__TOPICS", "a,b,a", "more than once"),
        ("HAPAX_TELEMETRY__READERS", "a\nb", "cannot be printed"),
        ("HAPAX_TELEMETRY__READERS", "a,a", "more than once"),
        ("HAPAX_INPUT__TOPICS", "^orders.*", "patterns are not supported"),
        ("HAPAX_INPUT__START", "newest", "choose one of earliest, latest, refuse"),
        ("HAPAX_OUTPUT__TOPIC", "..", "a topic's name"),
        ("HAPAX_OUTPUT__PARTITIONER", "murmur3", "choose one of murmur2"),
        ("HAPAX_OUTPUT__TIMESTAMP", "event", "choose one of record, now"),
        ("HAPAX_DEAD_LETTER__TOPIC", "dead letters", "a topic's name"),
        ("HAPAX_DEAD_LETTER__RATE_MAX", "1.1", "from 0 to 1"),
        ("HAPAX_DEAD_LETTER__RATE_MAX", "101%", "from 0 to 1"),
        ("HAPAX_DEAD_LETTER__RATE_MAX", "nan", "from 0 to 1"),
        ("HAPAX_DEAD_LETTER__RECORDS_MIN", "0", "whole number from 1"),
        ("HAPAX_DEDUP__ID", "uuid", "uuid is no source of an id"),
        ("HAPAX_DEDUP__ID", "header:", "header: is no source of an id"),
        ("HAPAX_DEDUP__ID", "json:order", "json:order is no source of an id"),
        ("HAPAX_DEDUP__ID", "json:/a~2", "json:/a~2 is no source of an id"),
        ("HAPAX_DEDUP__ID", "key,key", "more than once"),
        ("HAPAX_DEDUP__TTL", "24", "the unit is missing: 24ms or 24s?"),
        ("HAPAX_DEDUP__TTL", "500ms", "between 1s and 365d"),
        ("HAPAX_DEDUP__ON_OUTAGE", "drop", "choose one of pause, pass"),
        ("HAPAX_DEDUP__TIMEOUT", "2m", "between 10ms and 1m"),
        ("HAPAX_TRANSACTION__INTERVAL", "10 parsecs", "parsecs is no unit of time here"),
        ("HAPAX_TRANSACTION__RECORDS_MAX", "1e3", "whole number"),
        ("HAPAX_TRANSACTION__RECORDS_MAX", "٣", "whole number"),
        ("HAPAX_TRANSACTION__BYTES_MAX", "16M", "M is no unit of size here"),
        ("HAPAX_TRANSACTION__BYTES_MAX", "10B", "between 1KiB and 1GiB"),
        ("HAPAX_TRANSACTION__TIMEOUT", "900ms", "between 1s and 15m"),
        ("HAPAX_GROUP__MEMBERSHIP", "fixed", "choose one of static, dynamic"),
        ("HAPAX_GROUP__PROTOCOL", "eager", "choose one of classic, consumer"),
        ("HAPAX_GROUP__SESSION_TIMEOUT", "31m", "between 1s and 30m"),
        ("HAPAX_GROUP__MAX_POLL_INTERVAL", "2d", "between 1s and 24h"),
        ("HAPAX_RETRY__LATER", "no error", "types of exceptions"),
        ("HAPAX_RETRY__ATTEMPTS", "2", "from 3 to 1000: a broker that restarts"),
        ("HAPAX_STOP_AFTER__RECORDS", "0", "whole number from 1"),
        ("HAPAX_STOP_AFTER__AT_END", "maybe", "true or false"),
        ("HAPAX_SHUTDOWN__TIMEOUT", "0s", "between 1s and 1h"),
        ("HAPAX_WATCHDOG__TIMEOUT", "60", "the unit is missing"),
        ("HAPAX_TELEMETRY__PORT", "65536", "whole number from 0 to 65535"),
        ("HAPAX_TELEMETRY__ADDRESS", "a\tb", "a line break or another character"),
        ("HAPAX_TELEMETRY__LOG_LEVEL", "trace", "choose one of debug"),
        ("HAPAX_TELEMETRY__LOG_FORMAT", "xml", "choose one of auto"),
        (f"{SECURITY}PROTOCOL", "tls", "choose one of plaintext, ssl"),
        (f"{SECURITY}SASL_MECHANISM", "GSSAPI", "choose one of PLAIN"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_by_name_with_what_is(variable, text, reason):
    (problem,) = problems(**{variable: text})
    assert problem.startswith(f'{variable}="')
    assert reason in problem


@pytest.mark.parametrize(
    "text", ["kafka:0", "kafka:65536", "SSL://kafka:9092", "u:pw@kafka:9092", "a b:9092", "a:1,a:1"]
)
def test_brokers_are_host_and_port(text):
    (problem,) = problems(HAPAX_KAFKA__BOOTSTRAP_SERVERS=text)
    assert problem.startswith("HAPAX_KAFKA__BOOTSTRAP_SERVERS: ")
    assert text not in problem


def test_the_default_of_the_instance_is_checked_and_its_source_named():
    (problem,) = problems(POD_NAME="a pod")
    assert problem.startswith('HAPAX_INSTANCE="a pod" (from POD_NAME): use 1 to 200 letters')


def test_long_values_are_cut_and_control_characters_escaped_in_problems():
    (problem,) = problems(HAPAX_ENGINE="\x1b[31m" + "x" * 10_000)
    assert problem.startswith('HAPAX_ENGINE="\\u001b[31mx')
    assert len(problem) < 200


def test_all_problems_are_told_at_once_rules_between_sound_settings_too():
    told = problems(
        HAPAX_APP="",
        HAPAX_TRANSACTION__INTERVAL="soon",
        HAPAX_TRANSACTION__TIMEOUT="20s",
        HAPAX_KAFKA__PROPERTIES='{"acks": 1, "group.id": "x"}',
        HAPAX_OUTPUT__TOPIC="in-a",
        HAPAX_COLOUR="red",
    )
    assert [problem.partition("=")[0].split()[0] for problem in told] == [
        "HAPAX_COLOUR",
        "HAPAX_APP",
        "HAPAX_KAFKA__PROPERTIES:",
        "HAPAX_KAFKA__PROPERTIES:",
        "HAPAX_TRANSACTION__INTERVAL",
        "HAPAX_TRANSACTION__TIMEOUT",
        "HAPAX_OUTPUT__TOPIC",
    ]


def test_a_rule_is_silent_about_a_setting_that_is_wrong_by_itself():
    (problem,) = problems(
        HAPAX_TRANSACTION__TIMEOUT="30s", HAPAX_GROUP__SESSION_TIMEOUT="forty seconds"
    )
    assert problem.startswith('HAPAX_GROUP__SESSION_TIMEOUT="forty seconds"')


def test_a_rule_is_silent_about_a_setting_that_was_misspelt():
    (problem,) = problems(HAPAX_TRANSACTION__TIMEOUT="30s", HAPAX_GROUP__SESSION_TIMOUT="45s")
    assert problem.startswith("HAPAX_GROUP__SESSION_TIMOUT is read by nothing")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("HAPAX_KAFKA__BOOTSTRAP_SERVER", "did you mean HAPAX_KAFKA__BOOTSTRAP_SERVERS?"),
        ("HAPAX_TRANSACTION_INTERVAL", "did you mean HAPAX_TRANSACTION__INTERVAL?"),
        ("hapax_transform", "did you mean HAPAX_TRANSFORM?"),
        ("HAPAX_DEDUP__REDIS_URL_FIEL", "did you mean HAPAX_DEDUP__REDIS_URL_FILE?"),
        ("HAPAX_OUTPUT__TOPIC_FILE", "only secrets are read from files; set HAPAX_OUTPUT__TOPIC"),
        ("HAPAX_XYZZY", "remove it, or see hapax config reference"),
    ],
)
def test_a_variable_that_nothing_reads_is_told_without_its_value(name, advice):
    (problem,) = problems(**{name: "hunter2"})
    assert problem == f"{name} is read by nothing: {advice}" or problem.startswith(
        f"{name} is read by nothing: {advice} "
    )
    assert "hunter2" not in problem


def test_variables_of_other_programs_are_none_of_our_business():
    assert load_settings(REQUIRED | {"HAPAXES": "1", "KAFKA": "2"}).app == "orders"


def test_variables_that_kubernetes_sets_for_a_service_of_our_name_are_left_alone():
    links = {
        "HAPAX_SERVICE_HOST": "10.0.0.1",
        "HAPAX_SERVICE_PORT": "9464",
        "HAPAX_SERVICE_PORT_METRICS": "9464",
        "HAPAX_PORT": "tcp://10.0.0.1:9464",
        "HAPAX_PORT_9464_TCP": "tcp://10.0.0.1:9464",
        "HAPAX_PORT_9464_TCP_ADDR": "10.0.0.1",
        "HAPAX_METRICS_SERVICE_HOST": "10.0.0.2",
        "HAPAX_METRICS_SERVICE_PORT": "80",
        "HAPAX_METRICS_PORT_80_TCP_PROTO": "tcp",
    }
    assert load_settings(REQUIRED | links) == load_settings(REQUIRED)
    (problem,) = problems(**links, HAPAX_PROT="x")
    assert problem.startswith("HAPAX_PROT is read by nothing")


@pytest.mark.parametrize("name", ["HAPAX_PORT", "HAPAX_SERVICE_HOST", "HAPAX_SERVICE_PORT"])
def test_a_service_link_without_its_service_is_a_mistake(name):
    (problem,) = problems(**{name: "9464"})
    assert problem.startswith(f"{name} is read by nothing")
