import random

import pytest
from hypothesis import given, strategies as st

from hapax.commands.tree import app
from hapax.core.durations import duration_ms
from hapax.core.errors import ConfigurationError
from hapax.settings import VARIABLES, load_settings
from hapax.settings.value_types import duration_text, size_bytes, size_text
from tests.kit.commands import invoked
from tests.unit.test_settings import REQUIRED

SECURITY = "HAPAX_KAFKA__SECURITY__"
POLLED = "GROUP__MAX_POLL_INTERVAL=5m"


def problems(**environ: str) -> list[str]:
    with pytest.raises(ConfigurationError) as refusal:
        load_settings(REQUIRED | environ)
    return refusal.value.problems


def variables(words: str) -> dict[str, str]:
    """Return of ``TRANSACTION__TIMEOUT=10s ENGINE=spark`` the environment."""
    return {f"HAPAX_{name}": text for name, text in (word.split("=") for word in words.split())}


@pytest.mark.parametrize(
    ("shorter", "longer", "given"),
    [
        ("TRANSACTION__INTERVAL=10s", "TRANSACTION__TIMEOUT=10s", "TRANSACTION__INTERVAL=10s"),
        ("TRANSACTION__TIMEOUT=15s", "GROUP__SESSION_TIMEOUT=15s", "TRANSACTION__TIMEOUT=15s"),
        ("GROUP__SESSION_TIMEOUT=5m", "GROUP__MAX_POLL_INTERVAL=5m", "GROUP__SESSION_TIMEOUT=5m"),
        ("TRANSACTION__TIMEOUT=10s", "WATCHDOG__TIMEOUT=9s", "WATCHDOG__TIMEOUT=9s"),
        ("WATCHDOG__TIMEOUT=6m", "GROUP__MAX_POLL_INTERVAL=5m", "WATCHDOG__TIMEOUT=6m"),
        (POLLED, "DEDUP__TTL=2m", "DEDUP__TTL=2m DEDUP__REDIS_URL=redis://r"),
        ("CALL__TIMEOUT=5m", POLLED, "CALL__TIMEOUT=5m ENGINE=spark"),
    ],
)
def test_times_that_must_nest_are_told_with_both_values(shorter, longer, given):
    (problem,) = problems(**variables(given))
    assert problem.startswith(f"HAPAX_{shorter} must be shorter than HAPAX_{longer}: ")
    assert problem.endswith("lower the first or raise the second")


def test_a_static_name_does_not_go_with_the_consumer_protocol():
    (problem,) = problems(HAPAX_GROUP__PROTOCOL="consumer")
    assert "HAPAX_GROUP__MEMBERSHIP=static" in problem
    assert "HAPAX_GROUP__PROTOCOL=consumer" in problem
    dynamic = {"HAPAX_GROUP__PROTOCOL": "consumer", "HAPAX_GROUP__MEMBERSHIP": "dynamic"}
    idle = {"HAPAX_DEDUP__TTL": "1h", "HAPAX_DEDUP__ON_OUTAGE": "pass"}  # no mistake without store
    settings = load_settings(REQUIRED | dynamic | idle)
    assert (settings.group.protocol, settings.dedup.redis_url) == ("consumer", None)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("OAUTH_TOKEN_URL=http://t OAUTH_CLIENT_ID=c", "OAUTH_CLIENT_SECRET"),
        ("OAUTH_SCOPE=read", "OAUTH_TOKEN_URL"),
        ("TOKEN=t USER=u PASSWORD=p", "one login"),
        ("LOGICAL_CLUSTER=lsrc-1 USER=u PASSWORD=p", "OAUTH_TOKEN_URL"),
    ],
)
def test_a_registry_has_one_login_with_all_that_it_needs(given, named):
    words = " ".join(f"REGISTRY__{word}" for word in given.split())
    assert named in problems(**variables(words))[0]


LOGIN = {f"{SECURITY}USERNAME": "u", f"{SECURITY}PASSWORD": "hunter2"}
OAUTH = {
    f"{SECURITY}OAUTH_TOKEN_URL": "https://login.example/token",
    f"{SECURITY}OAUTH_CLIENT_ID": "c",
    f"{SECURITY}OAUTH_CLIENT_SECRET": "hunter2",
}
TOKEN_FILE = {f"{SECURITY}OAUTH_TOKEN_FILE": "/var/run/kafka/token"}


@pytest.mark.parametrize(
    ("mechanism", "needed"),
    [
        ("PLAIN", LOGIN),
        ("SCRAM-SHA-256", LOGIN),
        ("SCRAM-SHA-512", LOGIN),
        ("OAUTHBEARER", OAUTH),
        ("OAUTHBEARER", TOKEN_FILE),
    ],
)
def test_a_mechanism_is_set_with_all_it_needs(mechanism, needed):
    chosen = {f"{SECURITY}PROTOCOL": "sasl_ssl", f"{SECURITY}SASL_MECHANISM": mechanism}
    assert load_settings(REQUIRED | chosen | needed).kafka.security.sasl_mechanism == mechanism
    for missing in needed if needed != TOKEN_FILE else ():
        (problem,) = problems(**chosen, **{k: v for k, v in needed.items() if k != missing})
        assert problem.startswith(
            f"{SECURITY}SASL_MECHANISM={mechanism} needs {missing}, which is unset"
        )


@pytest.mark.parametrize("name", ["OAUTH_TOKEN_URL", "OAUTH_CLIENT_ID", "OAUTH_SCOPE"])
def test_a_token_comes_from_one_place(name):
    chosen = {f"{SECURITY}PROTOCOL": "sasl_ssl", f"{SECURITY}SASL_MECHANISM": "OAUTHBEARER"}
    (problem,) = problems(**chosen, **TOKEN_FILE, **{f"{SECURITY}{name}": "https://one"})
    assert problem.startswith(f"{SECURITY}OAUTH_TOKEN_FILE is set, and so is {SECURITY}{name}")


@pytest.mark.parametrize("variable", [f"{SECURITY}SASL_MECHANISM", *LOGIN, *OAUTH, *TOKEN_FILE])
def test_a_login_that_the_protocol_would_not_use_is_refused(variable):
    values = LOGIN | OAUTH | TOKEN_FILE | {f"{SECURITY}SASL_MECHANISM": "PLAIN"}
    (problem,) = problems(**{variable: values[variable], f"{SECURITY}PROTOCOL": "ssl"})
    assert problem.startswith(f"{variable} is set but {SECURITY}PROTOCOL=ssl does not use it")
    assert "hunter2" not in problem


DEDUP = "HAPAX_DEDUP__"
CACHE = {f"{DEDUP}REDIS_URL": "redis://cache/0"}
TARGET_SERVERS = "HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS"
TARGET = {TARGET_SERVERS: "target.example:9093"}

SASL = "KAFKA__SECURITY__"
OVER_SSL, LOGGED_IN = f"{SASL}PROTOCOL=ssl", f"{SASL}PROTOCOL=sasl_plaintext"
CACHED, LATER = "DEDUP__REDIS_URL=rediss://cache/0", "RETRY__DELAY_MAX=5s"
OPEN_CACHE = "DEDUP__REDIS_URL=redis://:hunter2@cache/0"
READ = "is one of HAPAX_INPUT__TOPICS=in-a,in-b: "
PAIRS = [("CERTIFICATE_FILE", "KEY_FILE"), ("KEY_FILE", "CERTIFICATE_FILE")]
UNUSED, UNSET = f"{SECURITY}PROTOCOL=ssl does not use it", "which is unset"


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (f"OUTPUT__TOPIC=in-b {READ}", "OUTPUT__TOPIC=in-b"),
        (f"DEAD_LETTER__TOPIC=in-b {READ}", "DEAD_LETTER__TOPIC=in-b"),
        ("DEAD_LETTER__TOPIC=out is also HAPAX_OUTPUT__TOPIC=out: ", "DEAD_LETTER__TOPIC=out"),
        (f"{LOGGED_IN} needs {SECURITY}SASL_MECHANISM, {UNSET}", LOGGED_IN),
        (
            f"{SASL}CA_FILE is set but {SECURITY}PROTOCOL=plaintext does not use it",
            f"{SASL}CA_FILE=/tls/ca.pem",
        ),
        *(
            (f"{SASL}{name} is set but {UNUSED}", f"{OVER_SSL} {SASL}{name}=one")
            for name in ("OAUTH_CA_FILE", "OAUTH_SCOPE")
        ),
        *(
            (
                f"{SASL}{one}=/tls/one needs {SECURITY}{two}, {UNSET}",
                f"{OVER_SSL} {SASL}{one}=/tls/one",
            )
            for one, two in PAIRS
        ),
        (
            f"{SASL}KEY_PASSWORD is set but {SECURITY}KEY_FILE is unset",
            f"{OVER_SSL} {SASL}KEY_PASSWORD=hunter2",
        ),
        (
            f"DEDUP__CA_FILE is set but {DEDUP}REDIS_URL has no TLS",
            f"{OPEN_CACHE} DEDUP__CA_FILE=/tls/one",
        ),
        *(
            (f"DEDUP__{one} needs {DEDUP}{two}, {UNSET}", f"{CACHED} DEDUP__{one}=hunter2")
            for one, two in [*PAIRS, ("KEY_PASSWORD", "KEY_FILE")]
        ),
        ("RETRY__DELAY=10s must not be longer than HAPAX_RETRY__DELAY_MAX=5s", LATER),
        ("RETRY__TOPIC needs HAPAX_ENGINE=worker", "RETRY__TOPIC=again ENGINE=spark"),
        ("RETRY__LATER needs HAPAX_ENGINE=worker", "RETRY__LATER=OSError ENGINE=spark"),
        ("RETRY__LATER does not go with HAPAX_FAST=on", "RETRY__LATER=OSError FAST=on"),
        ("RETRY__TOPIC=a is also in HAPAX_INPUT__TOPICS", "RETRY__TOPIC=a INPUT__TOPICS=a"),
        (f"OUTPUT__{SASL}USERNAME is set but", f"OUTPUT__{SASL}USERNAME=writer"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_sentence_without_secrets(words, given):
    (problem,) = problems(**variables(given))
    assert problem.startswith(f"HAPAX_{words}")
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("KAFKA__BOOTSTRAP_SERVERS", "target.example:9093", "same brokers"),
        ("ENGINE", "spark", "choose the worker"),
        ("GUARANTEE", "at_least_once", "choose exactly_once"),
        ("RETRY__TOPIC", "orders-again", "remove it"),
        ("INPUT__START", "latest", "choose earliest or refuse"),
        ("INPUT__END", "latest", "remove it"),
    ],
)
def test_what_does_not_go_with_another_cluster_is_told(name, text, word):
    (problem,) = problems(**TARGET, **{f"HAPAX_{name}": text})
    assert TARGET_SERVERS in problem
    assert f"HAPAX_{name}" in problem
    assert word in problem


def test_a_certificate_and_its_key_for_a_claim_store_without_tls_are_refused():
    given = {f"{DEDUP}{name}": "/tls/one" for name in ("CERTIFICATE_FILE", "KEY_FILE")}
    found = problems(**CACHE, **given)
    assert found[0].startswith(f"{DEDUP}CERTIFICATE_FILE is set but {DEDUP}REDIS_URL has no TLS")


def test_the_retry_topic_is_named_after_the_app_and_only_where_something_may_wait():
    assert load_settings(REQUIRED).retry_topic is None
    app = REQUIRED["HAPAX_APP"]
    assert load_settings(REQUIRED | {"HAPAX_RETRY__LATER": "OSError"}).retry_topic == f"{app}-retry"
    assert load_settings(REQUIRED | {"HAPAX_RETRY__TOPIC": "again"}).retry_topic == "again"


def test_on_another_cluster_the_outputs_may_have_the_name_of_the_input():
    mirrored = {"HAPAX_INPUT__TOPICS": "orders", "HAPAX_OUTPUT__TOPIC": "orders"}
    assert load_settings(REQUIRED | TARGET | mirrored).elsewhere


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
        ("HAPAX_CALL__CONCURRENCY", "0", "whole number from 1"),
        ("HAPAX_CALL__RECORDS_MAX", "0", "whole number from 1"),
        ("HAPAX_CALL__ORDER", "partition", "choose one of key, none"),
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


def test_the_default_of_the_instance_is_checked_and_long_values_are_cut_and_escaped():
    (problem,) = problems(POD_NAME="a pod")
    assert problem.startswith('HAPAX_INSTANCE="a pod" (from POD_NAME): use 1 to 200 letters')
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


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("SESSION_TIMEOUT", "forty seconds", '="forty seconds"'),
        ("SESSION_TIMOUT", "45s", " is read by nothing"),
    ],
)
def test_a_rule_is_silent_about_a_setting_that_is_wrong_by_itself_or_misspelt(name, text, said):
    (problem,) = problems(**{"HAPAX_TRANSACTION__TIMEOUT": "30s", f"HAPAX_GROUP__{name}": text})
    assert problem.startswith(f"HAPAX_GROUP__{name}{said}")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("HAPAX_KAFKA__BOOTSTRAP_SERVER", "did you mean HAPAX_KAFKA__BOOTSTRAP_SERVERS?"),
        ("HAPAX_TRANSACTION_INTERVAL", "did you mean HAPAX_TRANSACTION__INTERVAL?"),
        ("hapax_transform", "did you mean HAPAX_TRANSFORM?"),
        ("HAPAX_DEDUP__REDIS_URL_FIEL", "did you mean HAPAX_DEDUP__REDIS_URL_FILE?"),
        ("HAPAX_OUTPUT__TOPIC_FILE", "only secrets are read from files; set HAPAX_OUTPUT__TOPIC"),
        ("HAPAX_XYZZY", "remove it, or see hapax config reference"),
        # Links of Kubernetes without their service:
        *((f"HAPAX_{link}", "") for link in ("PORT", "SERVICE_HOST", "SERVICE_PORT")),
    ],
)
def test_a_variable_that_nothing_reads_is_told_without_its_value(name, advice):
    (problem,) = problems(**{name: "hunter2"})
    said = f"{name} is read by nothing: {advice}"
    assert problem == said or problem.startswith(f"{said} " if advice else said)
    assert "hunter2" not in problem


def misspelt(name: str, chance: random.Random) -> str:
    """Drop, swap or double a letter of a name, but its first and last."""
    at = chance.randrange(1, len(name) - 1)
    dropped, swapped = name[:at] + name[at + 1 :], name[: at - 1] + name[at] + name[at - 1]
    wrong = chance.choice([dropped, swapped + name[at + 1 :], name[:at] + name[at] + name[at:]])
    return wrong if wrong != name else misspelt(name, chance)


def test_twenty_misspelt_settings_are_refused_with_the_name_that_is_meant():
    chance = random.Random(33)
    meant = chance.sample(
        sorted(variable.name.removeprefix("HAPAX_") for variable in VARIABLES), 20
    )
    wrong = {misspelt(name, chance): name for name in meant}
    assert sorted(problems(**dict.fromkeys((f"HAPAX_{name}" for name in wrong), "x"))) == sorted(
        f"HAPAX_{name} is read by nothing: did you mean HAPAX_{right}?"
        for name, right in wrong.items()
    )
    assert len(wrong) == 20


def test_ten_misspelt_flags_are_refused_with_the_name_that_is_meant():
    chance, flags = random.Random(33), "input output brokers dead-letter app engine env-file set"
    for flag in (*flags.split(), "brokers", "engine"):
        wrong = misspelt(flag, chance)
        said = invoked(app, ["run", f"--{wrong}", "x"], code=2).stderr
        assert said.startswith(f"hapax run: No such option: --{wrong} ")
        assert f"--{flag}" in said, said


def test_variables_of_other_programs_and_of_a_service_of_our_name_are_left_alone():
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
        "HAPAXES": "1",
        "KAFKA": "2",
    }
    assert load_settings(REQUIRED | links) == load_settings(REQUIRED)
    (problem,) = problems(**links, HAPAX_PROT="x")
    assert problem.startswith("HAPAX_PROT is read by nothing")


@given(st.integers(min_value=0, max_value=10**14))
def test_a_duration_or_size_that_was_written_is_read_as_the_same_number(value):
    assert duration_ms(duration_text(value)) == value
    assert size_bytes(size_text(value)) == value


@given(st.integers(min_value=0, max_value=10**9), st.integers(min_value=0, max_value=999))
def test_fractions_of_a_second_are_exact(seconds, thousandths):
    assert duration_ms(f"{seconds}.{thousandths:03}s") == seconds * 1000 + thousandths


@pytest.mark.parametrize(
    ("read", "hint"), [(duration_ms, "like 250ms"), (size_bytes, "like 16MiB")]
)
@given(text=st.text(max_size=12))
def test_any_text_is_a_duration_or_a_size_or_a_plain_refusal(read, hint, text):
    try:
        assert read(text) >= 0
    except ValueError as refusal:
        assert hint in str(refusal) or "finer" in str(refusal)  # noqa: PT017 - either is right


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (duration_ms, "250ms", 250),
        (duration_ms, "1.5s", 1_500),
        (duration_ms, "0.3s", 300),
        (duration_ms, "10 s", 10_000),
        (duration_ms, "5m", 300_000),
        (duration_ms, "24h", 86_400_000),
        (duration_ms, "7d", 604_800_000),
        (size_bytes, "16MiB", 16_777_216),
        (size_bytes, "1MB", 1_000_000),
        (size_bytes, "1.5KiB", 1_536),
        (size_bytes, "2 gib", 2_147_483_648),
        (size_bytes, "4096", 4_096),
        (size_bytes, "7B", 7),
    ],
)
def test_readable_durations_and_sizes_are_read(read, text, value):
    assert read(text) == value


@pytest.mark.parametrize(
    ("value_ms", "text"),
    [(100, "100ms"), (10_000, "10s"), (60_000, "60s"), (300_000, "5m"), (86_400_000, "24h")],
)
def test_durations_are_written_as_people_write_them(value_ms, text):
    assert duration_text(value_ms) == text


@pytest.mark.parametrize(
    ("read", "text", "reason"),
    [
        (duration_ms, "100", "the unit is missing: 100ms or 100s?"),
        (duration_ms, "10 parsecs", "parsecs is no unit of time here"),
        (duration_ms, "10S", "S is no unit of time here"),
        (duration_ms, "1.5ms", "finer than a millisecond"),
        *((duration_ms, text, "like 250ms") for text in ("-5s", "1h30m", "\u0661s", "")),
        (size_bytes, "16M", "M is no unit of size here"),
        (size_bytes, "0.5", "finer than a byte"),
        *((size_bytes, text, "like 16MiB") for text in ("-1", "many")),
    ],
)
def test_a_duration_or_size_that_is_none_is_refused_with_a_hint(read, text, reason):
    with pytest.raises(ValueError, match=r"write a (duration|size)|finer") as refusal:
        read(text)
    assert reason in str(refusal.value)


PIPELINE = {
    "HAPAX_ENGINE": "spark",
    "HAPAX_SPARK__DATAFRAME": "shop.revenue:pipeline",
    "HAPAX_SPARK__CHECKPOINT": "/durable/revenue",
}


def test_a_weaker_guarantee_is_for_the_worker():
    (problem,) = problems(HAPAX_ENGINE="spark", HAPAX_GUARANTEE="at_least_once")
    assert problem == "HAPAX_GUARANTEE=at_least_once is for the worker; Spark runs exactly_once"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("HAPAX_ENGINE", "worker", "needs HAPAX_ENGINE=spark, which is worker"),
        ("HAPAX_SPARK__CHECKPOINT", "", "needs HAPAX_SPARK__CHECKPOINT, which is unset"),
    ],
)
def test_a_pipeline_needs_the_engine_that_runs_it_and_a_checkpoint(name, text, words):
    (problem,) = problems(**PIPELINE | {name: text})
    assert words in problem


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("HAPAX_TRANSFORM", "shop.orders:transform", "unset one of them"),
        ("HAPAX_DEDUP__REDIS_URL", "redis://:hunter2@cache:6379/0", "dropDuplicatesWithin"),
        ("HAPAX_DEAD_LETTER__TOPIC", "dead", "give bad rows a topic column"),
        ("HAPAX_STOP_AFTER__RECORDS", "7", "HAPAX_STOP_AFTER__AT_END"),
        ("HAPAX_GUARANTEE", "at_least_once", "its only guarantee is exactly_once"),
        ("HAPAX_CALL__TIMEOUT", "5s", "bound what may hang in the function itself"),
        ("HAPAX_CALL__CONCURRENCY", "8", "Spark makes the calls"),
        ("HAPAX_OUTPUT__TIMESTAMP", "now", "the column timestamp has it"),
    ],
)
def test_what_would_mean_nothing_to_a_pipeline_is_refused_with_what_to_use(name, value, instead):
    (problem,) = problems(**PIPELINE | {name: value})
    assert problem.startswith(f"{name}=")
    assert "does not go with HAPAX_SPARK__DATAFRAME=shop.revenue:pipeline" in problem
    assert instead in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    ("master", "checkpoint", "refused"),
    [
        ("local[4]", "/durable/revenue", False),
        ("spark://spark:7077", "/durable/revenue", True),
        ("spark://spark:7077", "file:///shared/revenue", False),
        ("k8s://https://cluster", "s3a://bucket/revenue", False),
    ],
)
def test_a_cluster_needs_a_checkpoint_that_all_of_it_sees(master, checkpoint, *, refused):
    where = {"HAPAX_SPARK__MASTER": master, "HAPAX_SPARK__CHECKPOINT": checkpoint}
    if refused:
        (problem,) = problems(**PIPELINE | where)
        assert "is a folder of this machine" in problem
    else:
        assert load_settings(REQUIRED | PIPELINE | where).spark.checkpoint == checkpoint


def test_no_app_has_the_name_of_a_markers_group():
    (problem,) = problems(HAPAX_APP="orders--sink")
    assert "choose another name" in problem


def test_a_pipeline_is_no_member_of_a_group_so_its_transaction_may_be_long():
    times = {"HAPAX_TRANSACTION__TIMEOUT": "50s"}
    assert load_settings(REQUIRED | PIPELINE | times).transaction.timeout_ms == 50_000
    (problem,) = problems(**times)
    assert "HAPAX_GROUP__SESSION_TIMEOUT" in problem
