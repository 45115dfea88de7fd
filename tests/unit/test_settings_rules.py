import pytest

from hapax.settings import load_settings
from tests.unit.test_settings import REQUIRED
from tests.unit.test_settings_problems import SECURITY, problems


@pytest.mark.parametrize(
    ("shorter", "longer", "given"),
    [
        ("TRANSACTION__INTERVAL=10s", "TRANSACTION__TIMEOUT=10s", {"TRANSACTION__INTERVAL": "10s"}),
        ("TRANSACTION__TIMEOUT=15s", "GROUP__SESSION_TIMEOUT=15s", {"TRANSACTION__TIMEOUT": "15s"}),
        (
            "GROUP__SESSION_TIMEOUT=5m",
            "GROUP__MAX_POLL_INTERVAL=5m",
            {"GROUP__SESSION_TIMEOUT": "5m"},
        ),
        ("TRANSACTION__TIMEOUT=10s", "WATCHDOG__TIMEOUT=9s", {"WATCHDOG__TIMEOUT": "9s"}),
        ("WATCHDOG__TIMEOUT=6m", "GROUP__MAX_POLL_INTERVAL=5m", {"WATCHDOG__TIMEOUT": "6m"}),
        (
            "GROUP__MAX_POLL_INTERVAL=5m",
            "DEDUP__TTL=2m",
            {"DEDUP__TTL": "2m", "DEDUP__REDIS_URL": "redis://localhost/0"},
        ),
        (
            "CALL__TIMEOUT=5m",
            "GROUP__MAX_POLL_INTERVAL=5m",
            {"CALL__TIMEOUT": "5m", "ENGINE": "spark"},
        ),
    ],
)
def test_times_that_must_nest_are_told_with_both_values(shorter, longer, given):
    (problem,) = problems(**{f"HAPAX_{name}": text for name, text in given.items()})
    assert problem.startswith(f"HAPAX_{shorter} must be shorter than HAPAX_{longer}: ")
    assert problem.endswith("lower the first or raise the second")


def test_a_static_name_does_not_go_with_the_consumer_protocol():
    (problem,) = problems(HAPAX_GROUP__PROTOCOL="consumer")
    assert "HAPAX_GROUP__MEMBERSHIP=static" in problem
    assert "HAPAX_GROUP__PROTOCOL=consumer" in problem
    dynamic = {"HAPAX_GROUP__PROTOCOL": "consumer", "HAPAX_GROUP__MEMBERSHIP": "dynamic"}
    assert load_settings(REQUIRED | dynamic).group.protocol == "consumer"


def test_dedup_settings_without_a_claim_store_are_idle_and_no_mistake():
    idle = {"HAPAX_DEDUP__TTL": "1h", "HAPAX_DEDUP__ON_OUTAGE": "pass"}
    assert load_settings(REQUIRED | idle).dedup.redis_url is None


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
    security = load_settings(REQUIRED | chosen | needed).kafka.security
    assert security.sasl_mechanism == mechanism
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
SSL = {f"{SECURITY}PROTOCOL": "ssl"}
CACHE, SECURE_CACHE = (
    {f"{DEDUP}REDIS_URL": f"{scheme}://cache/0"} for scheme in ("redis", "rediss")
)
TARGET_SERVERS = "HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS"
TARGET = {TARGET_SERVERS: "target.example:9093"}


@pytest.mark.parametrize(
    ("words", "environ"),
    [
        (
            "HAPAX_OUTPUT__TOPIC=in-b is one of HAPAX_INPUT__TOPICS=in-a,in-b: ",
            {"HAPAX_OUTPUT__TOPIC": "in-b"},
        ),
        (
            "HAPAX_DEAD_LETTER__TOPIC=in-b is one of HAPAX_INPUT__TOPICS=in-a,in-b: ",
            {"HAPAX_DEAD_LETTER__TOPIC": "in-b"},
        ),
        (
            "HAPAX_DEAD_LETTER__TOPIC=out is also HAPAX_OUTPUT__TOPIC=out: ",
            {"HAPAX_DEAD_LETTER__TOPIC": "out"},
        ),
        (
            f"{SECURITY}PROTOCOL=sasl_plaintext needs {SECURITY}SASL_MECHANISM, which is unset",
            {f"{SECURITY}PROTOCOL": "sasl_plaintext"},
        ),
        (
            f"{SECURITY}CA_FILE is set but {SECURITY}PROTOCOL=plaintext does not use it",
            {f"{SECURITY}CA_FILE": "/tls/ca.pem"},
        ),
        *(
            (
                f"{SECURITY}{name} is set but {SECURITY}PROTOCOL=ssl does not use it",
                SSL | {f"{SECURITY}{name}": "one"},
            )
            for name in ("OAUTH_CA_FILE", "OAUTH_SCOPE")
        ),
        (
            f"{SECURITY}CERTIFICATE_FILE=/tls/one needs {SECURITY}KEY_FILE, which is unset",
            SSL | {f"{SECURITY}CERTIFICATE_FILE": "/tls/one"},
        ),
        (
            f"{SECURITY}KEY_FILE=/tls/one needs {SECURITY}CERTIFICATE_FILE, which is unset",
            SSL | {f"{SECURITY}KEY_FILE": "/tls/one"},
        ),
        (
            f"{SECURITY}KEY_PASSWORD is set but {SECURITY}KEY_FILE is unset",
            SSL | {f"{SECURITY}KEY_PASSWORD": "hunter2"},
        ),
        (
            f"{DEDUP}CA_FILE is set but {DEDUP}REDIS_URL has no TLS",
            {f"{DEDUP}REDIS_URL": "redis://:hunter2@cache/0", f"{DEDUP}CA_FILE": "/tls/one"},
        ),
        *(
            (
                f"{DEDUP}{given} needs {DEDUP}{missing}, which is unset",
                SECURE_CACHE | {f"{DEDUP}{given}": "hunter2"},
            )
            for given, missing in (
                ("CERTIFICATE_FILE", "KEY_FILE"),
                ("KEY_FILE", "CERTIFICATE_FILE"),
                ("KEY_PASSWORD", "KEY_FILE"),
            )
        ),
        (
            "HAPAX_RETRY__DELAY=10s must not be longer than HAPAX_RETRY__DELAY_MAX=5s",
            {"HAPAX_RETRY__DELAY_MAX": "5s"},
        ),
        (
            "HAPAX_RETRY__TOPIC needs HAPAX_ENGINE=worker",
            {"HAPAX_RETRY__TOPIC": "again", "HAPAX_ENGINE": "spark"},
        ),
        (
            "HAPAX_RETRY__LATER needs HAPAX_ENGINE=worker",
            {"HAPAX_RETRY__LATER": "OSError", "HAPAX_ENGINE": "spark"},
        ),
        (
            "HAPAX_RETRY__LATER does not go with HAPAX_FAST=on",
            {"HAPAX_RETRY__LATER": "OSError", "HAPAX_FAST": "on"},
        ),
        (
            "HAPAX_RETRY__TOPIC=orders is also in HAPAX_INPUT__TOPICS",
            {"HAPAX_RETRY__TOPIC": "orders", "HAPAX_INPUT__TOPICS": "orders"},
        ),
        (
            "HAPAX_OUTPUT__KAFKA__SECURITY__USERNAME is set but",
            {"HAPAX_OUTPUT__KAFKA__SECURITY__USERNAME": "writer"},
        ),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_sentence_without_secrets(words, environ):
    (problem,) = problems(**environ)
    assert problem.startswith(words)
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
    mirrored = {
        "HAPAX_INPUT__TOPICS": "orders",
        "HAPAX_OUTPUT__TOPIC": "orders",
    }
    assert load_settings(REQUIRED | TARGET | mirrored).elsewhere
