"""Tokens over TLS: what the client needs for it, and the token service of the sandbox."""

import re
import time
from contextlib import closing
from typing import Any

import pytest

from hapax.core.errors import SchemasUnavailableError
from hapax.core.formats import RegistryOptions, Secret
from hapax.kafka import properties as kafka_clients
from hapax.kafka.connection import access
from hapax.kafka.properties import consumer_properties
from hapax.sandbox.guard import Authority
from hapax.schemas.registry import Registry
from hapax.settings import Settings
from tests.kit.guarded import TokenServer
from tests.kit.schema_registry import RegistryDouble
from tests.unit.test_kafka_clients import settings

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


def oauthbearer(**more: str) -> Settings:
    security = {"PROTOCOL": "sasl_plaintext", "SASL_MECHANISM": "OAUTHBEARER", **more}
    return settings(
        KAFKA__BOOTSTRAP_SERVERS="127.0.0.1:1",
        **{f"KAFKA__SECURITY__{name}": text for name, text in security.items()},
    )


def given(url: str, secret: str = WRONG, **more: str) -> Settings:
    login = {"OAUTH_CLIENT_ID": "hapax-oauth", "OAUTH_CLIENT_SECRET": secret}
    return oauthbearer(OAUTH_TOKEN_URL=url, **login, **more)


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
    said = access(known).text
    assert said is not None
    assert "Connection refused" in said, "it has its token, but no broker listens"
    assert tokens.served > before


def test_a_wrong_secret_a_strange_authority_and_a_service_that_is_away_are_named(
    authority, tokens, tmp_path
):
    stranger = str(Authority(tmp_path).ca_file)
    for asked, words in (
        (given(tokens.url, WRONG, OAUTH_CA_FILE=str(authority.ca_file)), "invalid_client"),
        (given(tokens.url, tokens.client_secret, OAUTH_CA_FILE=stranger), "certificate"),
        (given("https://127.0.0.1:1/token"), "token"),
    ):
        began_s = time.monotonic()
        said = access(asked).text
        assert said is not None
        assert "token" in said
        assert words in said
        assert WRONG not in said
        assert time.monotonic() - began_s < 30


# -- Tokens for a schema registry -----------------------------------------------------------


def asking(url: str, tokens: TokenServer, **more: Any) -> Registry:
    login = {"oauth_client_id": tokens.client_id, "oauth_client_secret": tokens.client_secret}
    told = {"oauth_token_url": tokens.url, **login, **more}
    told["oauth_client_secret"] = Secret(told["oauth_client_secret"])
    return Registry(RegistryOptions(url=(url,), **told))


def test_one_token_serves_every_question_to_a_registry_until_it_is_old(authority, tokens):
    with RegistryDouble() as double:
        double.add("orders-value", {"type": "string"})
        registry = asking(double.url, tokens, ca_file=str(authority.ca_file), oauth_scope="read")
        for _ in range(2):
            assert registry.by_id(1).kind == "AVRO"
        assert len({*double.logins}) == 1
        assert re.fullmatch(r"Bearer \S+", double.logins[0])
        registry._tokens._until_s = 0.0
        registry.by_id(1)
        assert len({*double.logins}) == 2


@pytest.mark.parametrize(
    ("given", "words", "refused"),
    [
        ({"oauth_client_secret": WRONG}, "refuses with invalid_client", True),
        ({"ca_file": None}, "gives no token: .*certificate verify failed", False),
        ({"oauth_token_url": "http://127.0.0.1:1"}, "gives no token: .*refused", False),
    ],
)
def test_a_token_service_that_gives_no_token_is_named(authority, tokens, given, words, refused):
    registry = asking("http://127.0.0.1:1", tokens, **{"ca_file": str(authority.ca_file), **given})
    with pytest.raises(SchemasUnavailableError, match=words) as caught:
        registry.by_id(1)
    assert caught.value.refused is refused
    assert WRONG not in str(caught.value)
