"""When certificates expire, read from their own bytes. Pure.

Only the validity is read (RFC 5280, section 4.1): the standard library decodes no certificate that
it does not trust, and one that has expired is not trusted.
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime

import msgspec

_PEM = re.compile(rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----(.+?)-----END", re.DOTALL)
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_CENTURY = 50
"""Two digits of a year from here on are of the 20th century (RFC 5280, 4.1.2.5.1)."""


ROLES = (
    "kafka-client",
    "kafka-ca",
    "kafka-broker",
    "redis-client",
    "redis-ca",
    "redis-server",
)
EXPIRY_WARNING_S = 30 * 86_400


class Certificate(msgspec.Struct, frozen=True):
    """One certificate that the service uses or meets.

    role       one of ROLES: whose it is
    place      the file, or host and port
    expires_s  Unix time; None where it could not be read
    problem    why it could not be read
    """

    role: str
    place: str
    expires_s: float | None = None
    problem: str = ""


def expiry_s(der: bytes) -> float:
    """Return the Unix time at which a certificate expires; raise ValueError when it is none."""
    try:
        return _expiry_s(der)
    except IndexError:
        raise ValueError("it is cut off") from None


def expiries_s(pem: bytes) -> list[float]:
    """Return when each certificate of a PEM file expires; raise ValueError when there is none."""
    blocks = _PEM.findall(pem)
    if not blocks:
        raise ValueError("there is no certificate in it")
    return [expiry_s(base64.b64decode(block)) for block in blocks]


def _expiry_s(der: bytes) -> float:
    _, outer, _ = _element(der, 0, _SEQUENCE)
    _, place, _ = _element(der, outer, _SEQUENCE)
    if der[place] == _VERSION:
        place = _element(der, place)[2]
    for _ in ("serial number", "signature", "issuer"):
        place = _element(der, place)[2]
    _, begin, _ = _element(der, place, _SEQUENCE)
    _, _, after_begin = _element(der, begin)
    kind, start, end = _element(der, after_begin)
    return _time_s(kind, der[start:end].decode("ascii", "replace"))


def _element(der: bytes, place: int, wanted: int | None = None) -> tuple[int, int, int]:
    """Return tag, start and end of the content of the element at a place."""
    tag, length = der[place], der[place + 1]
    start = place + 2
    if length & 0x80:
        count = length & 0x7F
        length = int.from_bytes(der[start : start + count])
        start += count
    if wanted is not None and tag != wanted:
        raise ValueError("it is no certificate")
    return tag, start, start + length


def _time_s(kind: int, text: str) -> float:
    if kind == _UTC_TIME:
        text = f"{'19' if int(text[:2]) >= _CENTURY else '20'}{text}"
    elif kind != _GENERALIZED_TIME:
        raise ValueError("its validity is no time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
