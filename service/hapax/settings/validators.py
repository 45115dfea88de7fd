"""Forms of text: names, topics, servers, functions, id sources, addresses and secrets."""

from __future__ import annotations

import re
from keyword import iskeyword
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from hapax.claims.store import KINDS, kind_of
from hapax.core.id_sources import id_source
from hapax.core.moments import moment_ms
from hapax.core.span import WORDS, offsets_of
from hapax.settings.redaction import HIDDEN, hidden, secrets_in
from hapax.settings.value_types import Form

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import SecretStr

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SERVER: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")
_PORT_MAX: Final = 65_535
_POINT: Final = (
    "a time (`2030-01-31T12:00Z`) · an age (`7d`) · comma list of `topic/partition/offset`"
)
_FORMS: Final = [f"`{scheme}://…`" for scheme in KINDS]


def _items(text: str) -> tuple[str, ...]:
    items = tuple(item.strip() for item in text.split(","))
    if "" in items:
        raise ValueError("an item of the list is empty: remove the extra comma")
    if len(set(items)) < len(items):
        raise ValueError("an item is in the list more than once")
    return items


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("use 1 to 200 letters, digits, dots, underscores and dashes")
    return text


def _topic(text: str) -> str:
    if not _TOPIC.fullmatch(text) or text in {".", ".."}:
        raise ValueError(
            "a topic's name has 1 to 249 letters, digits, dots, underscores and dashes, and is "
            "neither . nor .. (patterns are not supported)"
        )
    return text


def _topics(text: str) -> tuple[str, ...]:
    return tuple(_topic(name) for name in _items(text))


def _servers(text: str) -> str:
    servers = _items(text)
    for server in servers:
        match = _SERVER.fullmatch(server)
        if match is None or not 1 <= int(match[1] or "1") <= _PORT_MAX:
            raise ValueError(
                "each broker is written host:port, without a scheme or a login "
                "(HAPAX_KAFKA__SECURITY__PROTOCOL says how to talk to it)"
            )
    return ",".join(servers)


def _function(text: str) -> str:
    module, colon, function = text.partition(":")
    words = [*module.split("."), function]
    if not colon or not all(word.isidentifier() and not iskeyword(word) for word in words):
        raise ValueError("write package.module:function, like shop.orders:transform")
    return text


def _errors(text: str) -> tuple[str, ...]:
    names = _items(text)
    for name in names:
        if not all(word.isidentifier() and not iskeyword(word) for word in name.split(".")):
            raise ValueError("write types of exceptions, like TimeoutError or shop.prices.Busy")
    return names


def _id_sources(text: str) -> tuple[str, ...]:
    sources = _items(text)
    for source in sources:
        id_source(source)
    return sources


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("it holds a line break or another character that cannot be printed")
    return text


def _paths(text: str) -> tuple[str, ...]:
    return tuple(_one_line(path) for path in _items(text))


def _start(text: str) -> str:
    word = text.lower()
    return word if word in WORDS else _point(text, WORDS)


def _end(text: str) -> str:
    word = text.lower()
    return word if word == "latest" else _point(text, ("latest",))


def _point(text: str, words: tuple[str, ...]) -> str:
    try:
        if offsets_of(text) is None:
            moment_ms(text, 0)
    except ValueError as error:
        raise ValueError(f"choose one of {', '.join(words)}, or {error}") from None
    return text


def _http_url(text: str) -> str:
    parts = _split_url(text)
    if parts is None or parts.scheme not in {"https", "http"} or not parts.hostname:
        raise ValueError("write an address like https://login.example.com/token")
    if "@" in parts.netloc:
        raise ValueError("it holds a login, which belongs into the settings of the client")
    return text


def _secret(text: str) -> str:
    if "\0" in text:
        raise ValueError("it holds a zero byte, where the Kafka client would cut it off")
    # As of a file: $(cat FILE) cuts the end of the line off, env files and manifests do not.
    kept = text.rstrip("\r\n")
    if text and not kept:
        raise ValueError("it holds a line break and nothing else")
    return kept


def _claims_url(text: str) -> str:
    text = text.strip()
    parts = _split_url(text)
    kind = kind_of(text if parts is not None else "")
    if parts is not None:
        kind.check(parts)
    return text


def _claims_url_shown(url: SecretStr) -> str:
    # The query is hidden as a whole: clients read a password from there, too.
    return hidden(url.get_secret_value())


def _claims_url_parts(text: str) -> Iterator[str]:
    yield from secrets_in(text)
    try:
        parts = urlsplit(text)
    except ValueError:
        yield text
        return
    # Whatever the login looks like: the client takes it from here.
    login = parts.netloc.rpartition("@")[0]
    yield login.partition(":")[2] or login


def _split_url(text: str) -> SplitResult | None:
    # The standard library's errors repeat parts of the address, and with them passwords.
    try:
        parts = urlsplit(text)
        hosts = parts.netloc.rpartition("@")[2].split(",")
        ports = [urlsplit(f"//{host}").port for host in hosts]
    except ValueError:
        return None
    return None if 0 in ports or not text.isprintable() or " " in text else parts


NAME: Final = Form("1 to 200 letters, digits, `.`, `_`, `-`", _name)
TOPIC: Final = Form("topic name", _topic)
TOPICS: Final = Form("comma list of topic names", _topics, show=",".join)
GROUPS: Final = Form(
    "comma list of consumer groups", lambda text: _items(_one_line(text)), show=",".join
)
# Not quotable: people put logins into addresses.
SERVERS: Final = Form("comma list of `host:port`", _servers, quotable=False)
FUNCTION: Final = Form("`package.module:function`", _function)
START: Final = Form(f"{' · '.join(WORDS)} · {_POINT}", _start)
END: Final = Form(f"latest · {_POINT}", _end)
ERRORS: Final = Form("comma list of types of exceptions", _errors, show=",".join)
ID_SOURCES: Final = Form(
    "comma list of `cloudevents`, `header:<name>`, `json:/pointer`, `key`; `+` joins parts of one",
    _id_sources,
    show=",".join,
)
TEXT: Final = Form("text", _one_line)
PATH: Final = Form("path", _one_line)
PATHS: Final = Form("comma list of paths", _paths, show=",".join)
# Storage and clusters take logins in their addresses, whatever one may think of it.
ADDRESS: Final = Form("text", _one_line, show=hidden, quotable=False)
HTTP_URL: Final = Form(
    "`https://…` or `http://…`", _http_url, show=hidden, quotable=False, filed=True
)
HTTP_URLS: Final = Form(
    "comma list of `https://…` or `http://…`",
    lambda text: tuple(map(_http_url, _items(text))),
    show=lambda urls: ",".join(map(hidden, urls)),
    quotable=False,
)
SECRET: Final = Form(
    "text", _secret, show=lambda _: HIDDEN, secret=True, quotable=False, parts=lambda text: (text,)
)
CLAIMS_URL: Final = Form(
    f"{', '.join(_FORMS[:-1])} or {_FORMS[-1]}",
    _claims_url,
    show=_claims_url_shown,
    secret=True,
    quotable=False,
    parts=_claims_url_parts,
)
