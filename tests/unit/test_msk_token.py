"""Tokens for Amazon MSK: signed by AWS' own library, with credentials that are nobody's.

Two tests run with the library itself, the others with one that stands for it.
"""

import base64
import re
import sys
import time
from unittest.mock import Mock
from urllib.parse import parse_qs, urlsplit

import pytest

from hapax.core.errors import ConfigurationError
from hapax.kafka.properties import check_client_properties, consumer_properties
from hapax.kafka.tokens import token_problem
from hapax.settings import Settings, load_settings
from tests.kit.doctor import ENVIRON
from tests.kit.secured import stand_in

S = "HAPAX_KAFKA__SECURITY__"
MSK = {
    f"{S}PROTOCOL": "sasl_ssl",
    f"{S}SASL_MECHANISM": "OAUTHBEARER",
    f"{S}OAUTH_MSK_REGION": "eu-central-1",
}
NOBODYS = "n0b0dys-s3cr3t"


def settings(**more: str) -> Settings:
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
    token, until_s = consumer_properties(settings())["oauth_cb"]("")
    assert until_s == pytest.approx(time.time() + 900, abs=60)
    signed = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    assert signed.hostname == "kafka.eu-central-1.amazonaws.com"
    said = parse_qs(signed.query)
    assert said["Action"] == ["kafka-cluster:Connect"]
    assert said["X-Amz-Credential"][0].startswith("NOBODY/")
    assert NOBODYS not in signed.geturl()


def test_without_credentials_a_client_is_not_built_and_says_so(alone):
    said = token_problem(consumer_properties(settings()))
    assert said.startswith(f"{S}OAUTH_MSK_REGION: AWS' libraries find no credentials")


def test_what_the_signer_says_goes_to_the_client_in_seconds_or_by_the_kind_of_error(monkeypatch):
    stand_in(monkeypatch, lambda region: (f"signed-for-{region}", 1_900_000_000_500))
    ask = consumer_properties(settings())["oauth_cb"]
    assert ask("") == ("signed-for-eu-central-1", 1_900_000_000.5)

    stand_in(monkeypatch, Mock(side_effect=TimeoutError(NOBODYS)))
    said = token_problem(consumer_properties(settings()))
    assert said == f"{S}OAUTH_MSK_REGION: no token could be signed: TimeoutError"


def test_without_the_extra_the_command_that_installs_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    command = re.escape("pip install 'hapax-kafka[msk-iam]'")
    assert re.search(command, token_problem(consumer_properties(settings())))
    with pytest.raises(ConfigurationError, match=command):  # hapax config check
        check_client_properties(settings())


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
        settings(**more)
    assert words in str(caught.value)
