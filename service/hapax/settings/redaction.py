"""What is secret by its name, and what is secret by its place in a text.

By name: a property of the Kafka client or of Spark, or an option inside a longer value
(``-Djavax.net.ssl.keyStorePassword=…``, a JAAS line, a connection string). By place: the login and
the query of an address, and what follows ``Bearer`` and ``Basic``.

A name that only speaks of a secret (where it lies, how long it is, which class reads it) stays
readable, for these are what people compare when a login fails.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HIDDEN: Final = "***"

_ANYWHERE: Final = re.compile(
    # Also inside longer words: keyPassword, clientSecret, oauthToken, accesskey. Of the extensions
    # of sasl.oauthbearer some identity providers want their secret there.
    "password|passwd|passphrase|secret|token|credential|jaas|apikey|accesskey|privatekey|accountkey"
    "|signature|authorization|cookie|oauthbearerconfig|extensions"
)
_WORDS: Final = frozenset(
    {
        "pwd",
        "pass",
        "pw",
        "pin",
        "key",  # secret.key, account.key.<account>, ssl.key.pem, encryption.key
        "keys",
        "pem",  # a text with a private key in it, or a certificate, which is no loss
        "sas",  # shared access signature of Azure
    }
)
_ABOUT: Final = frozenset(
    # The last word of a name that says something about a secret, and not the secret.
    {
        "algorithm",
        "bits",
        "class",
        "converter",
        "deserializer",
        "dir",
        "enable",
        "enabled",
        "endpoint",
        "file",
        "format",
        "interval",
        "length",
        "location",
        "mechanism",
        "method",
        "ms",
        "path",
        "provider",
        "providers",
        "regex",
        "seconds",
        "serializer",
        "size",
        "store",  # keyStore, trustStore: paths
        "timeout",
        "type",
        "uri",  # its login and its query are hidden by place
        "url",
    }
)
_PLAIN: Final = frozenset({"", "true", "false", "none", "null", "unset", "bearer", "basic", HIDDEN})
_SPLIT: Final = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")

# The login is what comes before the last @ of the authority. A password may hold a raw slash,
# beyond which no authority would continue: then its "port" is no number.
_LOGIN: Final = re.compile(
    r"""(?<=[A-Za-z0-9+.-])://
        (?:[^\s/?\#:@]*:(?!//|\d+[/?\#])(?P<password>[^\s"'<>]+)
          |[^\s/?\#:@]*:(?P<digits>[^\s/?\#]+)
          |(?P<user>[^\s/?\#:@]+))@""",
    re.VERBOSE,
)
_ADDRESS: Final = re.compile(r"(?<=[A-Za-z0-9+.-])://")
_QUERY: Final = re.compile(r"[?#](?P<query>.+)", re.DOTALL)
_BEARER: Final = re.compile(
    r"\b(?:Bearer|Basic)\s+(?P<value>[A-Za-z0-9+/=._~-]{8,})", re.IGNORECASE
)
# No pattern begins again inside of what it has seen: a long text costs no more than its length.
_NAME: Final = re.compile(
    r"""-D(?P<java>[A-Za-z][\w.-]*+)=|(?<![\w.-])(?P<name>[\w.-]++)["']?\s*+[=:]\s*+"""
)
_WORD: Final = re.compile(r"""(?P<word>[^\s"']+)""")
_VALUE: Final = re.compile(
    r"""\s*+(?:"(?P<double>(?:[^"\\]|\\.)*+)"?
      |'(?P<single>(?:[^'\\]|\\.)*+)'?
      |(?P<bare>[^\s;,&"'{}\[\]()]+))""",
    re.VERBOSE,
)


def is_secret(name: str) -> bool:
    """Whether the value of a property, an option or a variable of this name is a secret."""
    words = [word.lower() for word in _SPLIT.split(name) if word]
    if not words or words[-1] in _ABOUT:
        return False
    return not _WORDS.isdisjoint(words) or _ANYWHERE.search("".join(words)) is not None


def hidden(text: str) -> str:
    """Return a text without what is secret by its place."""
    shown, after = [], -1
    for start, end in sorted(_found(text)):
        if start > after:  # parts may lie within each other
            shown += [text[max(after, 0) : start], HIDDEN]
        after = max(after, end)
    return "".join(shown) + text[max(after, 0) :]


def hidden_values(properties: Mapping[str, str]) -> dict[str, str]:
    return {
        name: HIDDEN if is_secret(name) and value.lower() not in _PLAIN else hidden(value)
        for name, value in properties.items()
    }


def secret_values(properties: Mapping[str, str]) -> Iterator[str]:
    for name, value in properties.items():
        if is_secret(name) and value.lower() not in _PLAIN:
            yield value
            # Of a list of pairs each value may turn up alone.
            yield from (part.partition("=")[2] for part in value.split(",") if "=" in part)
        else:
            yield from secrets_in(value)


def secrets_in_json(text: str) -> Iterator[str]:
    """Yield what is secret in a JSON object of properties, as far as it can be read."""
    try:
        properties = json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError):
        properties = None
    if isinstance(properties, dict):
        yield from secret_values({name: str(value) for name, value in properties.items()})
    else:
        yield from secrets_in(text)


def secrets_in(text: str) -> Iterator[str]:
    """Yield every part of a text that is secret by its place; parts may lie within each other."""
    for start, end in _found(text):
        yield text[start:end]


def _found(text: str) -> Iterator[tuple[int, int]]:
    for word in re.finditer(r"\S+", text):
        # No login ends after the last @ of a word; without one there is none to search for.
        for found in _LOGIN.finditer(text, word.start(), text.rfind("@", *word.span()) + 1):
            yield from _told(text, *found.span(str(found.lastgroup)))
    for word in re.finditer(r"""[^\s"'<>]+""", text):
        if (address := _ADDRESS.search(text, *word.span())) and (
            query := _QUERY.search(text, address.end(), word.end())
        ):
            yield from _told(text, *query.span("query"))
    for found in _BEARER.finditer(text):
        yield from _told(text, *found.span("value"))
    place = 0
    while (match := _NAME.search(text, place)) is not None:
        place = match.end()
        name = match["java"] or match["name"].lstrip("0123456789_.")
        if is_secret(name) or is_secret(name.rpartition("-D")[2] or name):
            value = _WORD.match(text, place) if "-D" in match[0] else None
            value = value or _VALUE.match(text, place)
            if value is not None:
                place = value.end(str(value.lastgroup))
                yield from _told(text, *value.span(str(value.lastgroup)))


def _told(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    if text[start:end].lower() not in _PLAIN:
        yield start, end
