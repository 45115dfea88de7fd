"""Tokens of OAUTHBEARER from a file."""

import base64
import json
import time

import pytest

from hapax.kafka.connection import access
from hapax.kafka.properties import consumer_properties
from hapax.kafka.tokens import OPAQUE_S, TokenError, TokenFile
from tests.unit.test_oauth import oauthbearer

SIGNATURE = "s3cr3t"


def jwt(**claims: object) -> str:
    said = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"e30.{said}.{SIGNATURE}"


def test_the_client_gets_the_token_of_the_moment_and_until_when_it_is_valid(tmp_path):
    file = tmp_path / "token"
    ask = consumer_properties(oauthbearer(OAUTH_TOKEN_FILE=str(file)))["oauth_cb"]
    for until_s in (time.time() + 60, time.time() + 120):
        file.write_text(f"{jwt(exp=until_s)}\n")
        assert ask("") == (jwt(exp=until_s), until_s)


@pytest.mark.parametrize("token", ["opaque", "a.b.c", jwt(sub="x"), jwt(exp="soon"), "a.e30.c"])
def test_a_token_that_does_not_say_until_when_is_asked_for_again_soon(tmp_path, token):
    (tmp_path / "token").write_text(token)
    found, until_s = TokenFile(str(tmp_path / "token"))("")
    assert found == token
    assert abs(until_s - time.time() - OPAQUE_S) < 30


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        (b"", "holds no token: it is empty"),
        (b"two words", "has several words"),
        (b"\xff\xfe", "it is not text"),
        (jwt(exp=1).encode(), "expired"),
    ],
)
def test_what_is_no_token_is_told_without_what_the_file_holds(tmp_path, content, words):
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(TokenError, match=words) as caught:
        TokenFile(str(file))("")
    assert SIGNATURE not in str(caught.value)
    said = access(oauthbearer(OAUTH_TOKEN_FILE=str(file))).text
    assert said is not None
    assert said.startswith(f"HAPAX_KAFKA__SECURITY__OAUTH_TOKEN_FILE: {caught.value}"[:60])
