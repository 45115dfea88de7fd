"""Tokens for Amazon MSK: signed by AWS' own library, with credentials that are nobody's.

Two tests run with the library itself, the others with one that stands for it.
"""

import base64
import re
import sys
import time
from contextlib import closing
from urllib.parse import parse_qs, urlsplit

import pytest

from hapax.core.errors import ConfigurationError
from hapax.kafka import properties as kafka_clients
from hapax.kafka.connection import diagnose_connection
from hapax.kafka.properties import check_client_properties, consumer_properties
from hapax.kafka.tokens import token_problem
from hapax.sandbox.guard import Authority, TokenServer
from hapax.settings import Settings, load_settings
from tests.kit.doctor import ENVIRON
from tests.kit.secured import stand_in
from tests.unit.test_kafka_clients import settings

S = "HAPAX_KAFKA__SECURITY__"
MSK = {
    f"{S}PROTOCOL": "sasl_ssl",
    f"{S}SASL_MECHANISM": "OAUTHBEARER",
    f"{S}OAUTH_MSK_REGION": "eu-central-1",
}
NOBODYS = "n0b0dys-s3cr3t"


def msk_settings(**more: str) -> Settings:
    return load_settings({**ENVIRON, **MSK, **more})


@pytest.fixture
def alone(monkeypatch):
    """No identity but what the test gives, and nobody is asked for one."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


def test_a_token_is_a_request_to_the_cluster_of_the_region_signed_for_a_quarter_of_an_hour(alone):
    alone.setenv("AWS_ACCESS_KEY_ID", "NOBODY")
    alone.setenv("AWS_SECRET_ACCESS_KEY", NOBODYS)
    token, until_s = consumer_properties(msk_settings())["oauth_cb"]("")
    assert until_s == pytest.approx(time.time() + 900, abs=60)
    signed = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    assert signed.hostname == "kafka.eu-central-1.amazonaws.com"
    said = parse_qs(signed.query)
    assert said["Action"] == ["kafka-cluster:Connect"]
    assert said["X-Amz-Credential"][0].startswith("NOBODY/")
    assert NOBODYS not in signed.geturl()


def test_without_credentials_a_client_is_not_built_and_says_so(alone):
    said = token_problem(consumer_properties(msk_settings()))
    assert said.startswith(f"{S}OAUTH_MSK_REGION: AWS' libraries find no credentials")


def test_what_the_signer_says_goes_to_the_client_in_seconds(monkeypatch):
    stand_in(monkeypatch, lambda region: (f"signed-for-{region}", 1_900_000_000_500))
    ask = consumer_properties(msk_settings())["oauth_cb"]
    assert ask("") == ("signed-for-eu-central-1", 1_900_000_000.5)


def test_a_signer_that_fails_is_told_by_the_kind_of_its_error_alone(monkeypatch):
    def fail(_region: str) -> tuple[str, int]:
        raise TimeoutError(NOBODYS)

    stand_in(monkeypatch, fail)
    said = token_problem(consumer_properties(msk_settings()))
    assert said == f"{S}OAUTH_MSK_REGION: no token could be signed: TimeoutError"


def test_without_the_extra_the_command_that_installs_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    command = re.escape("pip install 'hapax-kafka[msk-iam]'")
    assert re.search(command, token_problem(consumer_properties(msk_settings())))
    with pytest.raises(ConfigurationError, match=command):  # hapax config check
        check_client_properties(msk_settings())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({f"{S}OAUTH_TOKEN_FILE": "/run/token"}, "unset one of them"),
        ({f"{S}OAUTH_SCOPE": "orders"}, "unset one of them"),
        ({f"{S}SASL_MECHANISM": "PLAIN"}, "USERNAME"),
        (
            {
                "HAPAX_ENGINE": "spark",
                "HAPAX_SPARK__DATAFRAME": "orders:frame",
                "HAPAX_SPARK__CHECKPOINT": "/checkpoint",
            },
            "signs no requests",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(more, words):
    with pytest.raises(ConfigurationError) as caught:
        msk_settings(**more)
    assert words in str(caught.value)


CA = "https.ca.location"
WRONG = "wr0ng"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def tokens(authority, tmp_path_factory):
    folder = tmp_path_factory.mktemp("oauth")
    with closing(TokenServer(folder, authority.issue("server"))) as server:
        yield server


def given(url: str, secret: str = WRONG, **more: str) -> Settings:
    security = {
        "PROTOCOL": "sasl_plaintext",
        "SASL_MECHANISM": "OAUTHBEARER",
        "OAUTH_TOKEN_URL": url,
        "OAUTH_CLIENT_ID": "hapax-oauth",
        "OAUTH_CLIENT_SECRET": secret,
        **more,
    }
    return settings(
        KAFKA__BOOTSTRAP_SERVERS="127.0.0.1:1",
        **{f"KAFKA__SECURITY__{name}": text for name, text in security.items()},
    )


def test_the_token_service_is_checked_by_the_authorities_that_are_named():
    properties = consumer_properties(given("https://login/token", OAUTH_CA_FILE="/tls/login.pem"))
    assert properties[CA] == "/tls/login.pem"


def test_without_a_name_the_authorities_of_the_system_are_taken(tmp_path, monkeypatch):
    bundle = tmp_path / "bundle.crt"
    bundle.touch()
    monkeypatch.setattr(kafka_clients, "AUTHORITIES", (str(tmp_path / "nowhere.crt"), str(bundle)))
    assert consumer_properties(given("https://login/token"))[CA] == str(bundle)
    assert CA not in consumer_properties(given("http://login/token"))


def test_a_token_is_fetched_over_tls(authority, tokens):
    known = given(tokens.url, tokens.client_secret, OAUTH_CA_FILE=str(authority.ca_file))
    before = tokens.served
    said = diagnose_connection(known)
    assert said is not None
    assert "Connection refused" in said, "it has its token, but no broker listens"
    assert tokens.served > before


def test_a_wrong_secret_of_the_client_is_named_and_not_told(authority, tokens):
    said = diagnose_connection(given(tokens.url, WRONG, OAUTH_CA_FILE=str(authority.ca_file)))
    assert said is not None
    assert "token" in said
    assert "invalid_client" in said
    assert WRONG not in said


def test_a_token_service_of_a_strange_authority_is_refused(tokens, tmp_path):
    stranger = Authority(tmp_path)
    said = diagnose_connection(
        given(tokens.url, tokens.client_secret, OAUTH_CA_FILE=str(stranger.ca_file))
    )
    assert said is not None
    assert "certificate" in said


def test_a_token_service_that_is_away_is_named_within_seconds():
    began_s = time.monotonic()
    said = diagnose_connection(given("https://127.0.0.1:1/token"))
    assert said is not None
    assert "token" in said
    assert time.monotonic() - began_s < 30
