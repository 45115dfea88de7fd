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

import msgspec

OPAQUE_S = 300.0
"""How long a token counts that does not say how long it is valid."""
BYTES_MAX = 1 << 16


class TokenError(Exception):
    """There is no token to be had, in one sentence without the token."""


class TokenFile(msgspec.Struct, frozen=True):
    """What a client asks for its tokens: its property ``oauth_cb``."""

    path: str

    def __call__(self, _config: str) -> tuple[str, float]:
        """Return the token and until when it is valid, Unix time in seconds.

        Raises TokenError; the client repeats none of its words, and asks again 10 s later.
        """
        try:
            with Path(self.path).open("rb") as file:
                token = file.read(BYTES_MAX).decode("ascii").strip()
        except OSError as error:
            raise TokenError(f"{self.path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise TokenError(f"{self.path} holds no token: it is not text") from None
        if not token or any(character.isspace() for character in token):
            raise TokenError(f"{self.path} holds no token: it is empty, or has several words")
        until_s = valid_until_s(token)
        if until_s is None:
            return token, time.time() + OPAQUE_S
        if until_s <= time.time():
            raise TokenError(f"the token in {self.path} expired {time.time() - until_s:.0f} s ago")
        return token, until_s


def valid_until_s(token: str) -> float | None:
    """Return what a JWT (RFC 7519) says as ``exp``; None for any other token. Not verified."""
    try:
        _header, said, _signature = token.split(".")
        claims = json.loads(base64.urlsafe_b64decode(said + "=" * (-len(said) % 4)))
        return float(claims["exp"])
    except (binascii.Error, ValueError, KeyError, TypeError):
        return None
