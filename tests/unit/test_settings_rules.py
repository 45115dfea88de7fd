import pytest

from hapax.settings import load_settings
from tests.unit.test_settings import REQUIRED
from tests.unit.test_settings_problems import SECURITY, problems


@pytest.mark.parametrize(
    ("shorter", "longer", "environ"),
    [
        (
            "HAPAX_TRANSACTION__INTERVAL=10s",
            "HAPAX_TRANSACTION__TIMEOUT=10s",
            {"HAPAX_TRANSACTION__INTERVAL": "10s"},
        ),
        (
            "HAPAX_TRANSACTION__TIMEOUT=15s",
            "HAPAX_GROUP__SESSION_TIMEOUT=15s",
            {"HAPAX_TRANSACTION__TIMEOUT": "15s"},
        ),
        (
            "HAPAX_GROUP__SESSION_TIMEOUT=5m",
            "HAPAX_GROUP__MAX_POLL_INTERVAL=5m",
            {"HAPAX_GROUP__SESSION_TIMEOUT": "5m"},
        ),
        (
            "HAPAX_TRANSACTION__TIMEOUT=10s",
            "HAPAX_WATCHDOG__TIMEOUT=9s",
            {"HAPAX_WATCHDOG__TIMEOUT": "9s"},
        ),
        (
            "HAPAX_WATCHDOG__TIMEOUT=6m",
            "HAPAX_GROUP__MAX_POLL_INTERVAL=5m",
            {"HAPAX_WATCHDOG__TIMEOUT": "6m"},
        ),
        (
            "HAPAX_GROUP__MAX_POLL_INTERVAL=5m",
            "HAPAX_DEDUP__TTL=2m",
            {"HAPAX_DEDUP__TTL": "2m", "HAPAX_DEDUP__REDIS_URL": "redis://localhost/0"},
        ),
        (
            "HAPAX_CALL__TIMEOUT=5m",
            "HAPAX_GROUP__MAX_POLL_INTERVAL=5m",
            {"HAPAX_CALL__TIMEOUT": "5m", "HAPAX_ENGINE": "spark"},
        ),
    ],
)
def test_times_that_must_nest_are_told_with_both_values(shorter, longer, environ):
    (problem,) = problems(**environ)
    assert problem.startswith(f"{shorter} must be shorter than {longer}: ")
    assert problem.endswith("lower the first or raise the second")


def test_a_static_name_does_not_go_with_the_consumer_protocol():
    (problem,) = problems(HAPAX_GROUP__PROTOCOL="consumer")
    assert "HAPAX_GROUP__MEMBERSHIP=static" in problem
    assert "HAPAX_GROUP__PROTOCOL=consumer" in problem
    dynamic = {"HAPAX_GROUP__PROTOCOL": "consumer", "HAPAX_GROUP__MEMBERSHIP": "dynamic"}
    assert load_settings(REQUIRED | dynamic).group.protocol == "consumer"


@pytest.mark.parametrize("variable", ["HAPAX_OUTPUT__TOPIC", "HAPAX_DEAD_LETTER__TOPIC"])
def test_writing_into_an_input_topic_is_refused(variable):
    (problem,) = problems(**{variable: "in-b"})
    assert problem.startswith(f"{variable}=in-b is one of HAPAX_INPUT__TOPICS=in-a,in-b: ")


def test_dead_letters_do_not_go_among_the_outputs():
    (problem,) = problems(HAPAX_DEAD_LETTER__TOPIC="out")
    assert problem.startswith("HAPAX_DEAD_LETTER__TOPIC=out is also HAPAX_OUTPUT__TOPIC=out: ")


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


def test_a_sasl_protocol_needs_a_mechanism():
    (problem,) = problems(**{f"{SECURITY}PROTOCOL": "sasl_plaintext"})
    assert problem.startswith(
        f"{SECURITY}PROTOCOL=sasl_plaintext needs {SECURITY}SASL_MECHANISM, which is unset"
    )


@pytest.mark.parametrize("variable", [f"{SECURITY}SASL_MECHANISM", *LOGIN, *OAUTH, *TOKEN_FILE])
def test_a_login_that_the_protocol_would_not_use_is_refused(variable):
    values = LOGIN | OAUTH | TOKEN_FILE | {f"{SECURITY}SASL_MECHANISM": "PLAIN"}
    (problem,) = problems(**{variable: values[variable], f"{SECURITY}PROTOCOL": "ssl"})
    assert problem.startswith(f"{variable} is set but {SECURITY}PROTOCOL=ssl does not use it")
    assert "hunter2" not in problem


def test_an_authority_that_the_protocol_would_not_use_is_refused():
    (problem,) = problems(**{f"{SECURITY}CA_FILE": "/tls/ca.pem"})
    assert problem.startswith(
        f"{SECURITY}CA_FILE is set but {SECURITY}PROTOCOL=plaintext does not use it"
    )


@pytest.mark.parametrize(
    ("given", "missing"),
    [("CERTIFICATE_FILE", "KEY_FILE"), ("KEY_FILE", "CERTIFICATE_FILE")],
)
def test_a_certificate_and_its_key_come_together(given, missing):
    (problem,) = problems(**{f"{SECURITY}PROTOCOL": "ssl", f"{SECURITY}{given}": "/tls/one"})
    assert problem.startswith(f"{SECURITY}{given}=/tls/one needs {SECURITY}{missing}")


DEDUP = "HAPAX_DEDUP__"


@pytest.mark.parametrize("name", ["CA_FILE", "CERTIFICATE_FILE"])
def test_certificates_of_a_claim_store_without_tls_are_refused(name):
    more = {f"{DEDUP}KEY_FILE": "/tls/key"} if name == "CERTIFICATE_FILE" else {}
    found = problems(
        **{f"{DEDUP}REDIS_URL": "redis://:hunter2@cache/0", f"{DEDUP}{name}": "/tls/one"}, **more
    )
    assert found[0].startswith(f"{DEDUP}{name} is set but {DEDUP}REDIS_URL has no TLS")
    assert "hunter2" not in "".join(found)


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ("CERTIFICATE_FILE", "KEY_FILE"),
        ("KEY_FILE", "CERTIFICATE_FILE"),
        ("KEY_PASSWORD", "KEY_FILE"),
    ],
)
def test_our_certificate_for_the_claim_store_comes_with_its_key(given, missing):
    (problem,) = problems(**{f"{DEDUP}REDIS_URL": "rediss://cache/0", f"{DEDUP}{given}": "hunter2"})
    assert problem.startswith(f"{DEDUP}{given} needs {DEDUP}{missing}, which is unset")
    assert "hunter2" not in problem


@pytest.mark.parametrize("name", ["OAUTH_CA_FILE", "OAUTH_SCOPE"])
def test_what_is_only_for_tokens_is_refused_where_none_are_fetched(name):
    (problem,) = problems(**{f"{SECURITY}PROTOCOL": "ssl", f"{SECURITY}{name}": "one"})
    assert problem.startswith(f"{SECURITY}{name} is set but {SECURITY}PROTOCOL=ssl does not use it")


def test_a_password_without_a_key_is_refused():
    (problem,) = problems(**{f"{SECURITY}PROTOCOL": "ssl", f"{SECURITY}KEY_PASSWORD": "hunter2"})
    assert problem.startswith(f"{SECURITY}KEY_PASSWORD is set but {SECURITY}KEY_FILE is unset")
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    ("words", "environ"),
    [
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
        ("types of exceptions", {"HAPAX_RETRY__LATER": "no error"}),
    ],
)
def test_what_later_tries_cannot_be_is_refused_in_one_sentence(words, environ):
    (problem,) = problems(**environ)
    assert words in problem


def test_the_retry_topic_is_named_after_the_app_and_only_where_something_may_wait():
    assert load_settings(REQUIRED).retry_topic is None
    app = REQUIRED["HAPAX_APP"]
    assert load_settings(REQUIRED | {"HAPAX_RETRY__LATER": "OSError"}).retry_topic == f"{app}-retry"
    assert load_settings(REQUIRED | {"HAPAX_RETRY__TOPIC": "again"}).retry_topic == "again"


def test_on_another_cluster_the_outputs_may_have_the_name_of_the_input():
    mirrored = {
        "HAPAX_INPUT__TOPICS": "orders",
        "HAPAX_OUTPUT__TOPIC": "orders",
        "HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS": "target.example:9092",
    }
    assert load_settings(REQUIRED | mirrored).elsewhere
