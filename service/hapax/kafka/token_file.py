"""Tokens of OAUTHBEARER from a file, as Kubernetes projects them into a pod.

The file is read whenever the client wants a token: at first, and when four fifths of the time are
over that is left of the last one (librdkafka). Kubernetes writes a new token at about the same
share of its life, so a connection never outlives its token by reading too early.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

OPAQUE_S = 300.0
"""How long a token counts that does not say how long it is valid."""
BYTES_MAX = 1 << 16


class TokenFileError(Exception):
    """There is no token to be had, in one sentence without the token."""


class TokenFile(msgspec.Struct, frozen=True):
    """What a client asks for its tokens: its property ``oauth_cb``."""

    path: str

    def __call__(self, _config: str) -> tuple[str, float]:
        """Return the token and until when it is valid, Unix time in seconds.

        Raises TokenFileError; the client repeats none of its words, and asks again 10 s later.
        """
        try:
            with Path(self.path).open("rb") as file:
                token = file.read(BYTES_MAX).decode("ascii").strip()
        except OSError as error:
            raise TokenFileError(f"{self.path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise TokenFileError(f"{self.path} holds no token: it is not text") from None
        if not token or any(character.isspace() for character in token):
            raise TokenFileError(f"{self.path} holds no token: it is empty, or has several words")
        until_s = valid_until_s(token)
        if until_s is None:
            return token, time.time() + OPAQUE_S
        if until_s <= time.time():
            raise TokenFileError(
                f"the token in {self.path} expired {time.time() - until_s:.0f} s ago"
            )
        return token, until_s


def token_problem(properties: Mapping[str, Any]) -> str:
    """Return why a client with these properties would get no token from its file; empty: it would.

    The client itself waits ten seconds for one, and raises what is no exception (confluent-kafka
    2.16).
    """
    if not isinstance(ask := properties.get("oauth_cb"), TokenFile):
        return ""
    try:
        ask("")
    except TokenFileError as error:
        return f"HAPAX_KAFKA__SECURITY__OAUTH_TOKEN_FILE: {error}"
    return ""


def valid_until_s(token: str) -> float | None:
    """Return what a JWT (RFC 7519) says as ``exp``; None for any other token. Not verified."""
    try:
        _header, said, _signature = token.split(".")
        claims = json.loads(base64.urlsafe_b64decode(said + "=" * (-len(said) % 4)))
        return float(claims["exp"])
    except (binascii.Error, ValueError, KeyError, TypeError):
        return None
