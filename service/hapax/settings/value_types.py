"""How a setting is written: for each kind of value, from text to value and back.

A form is in the annotation of its field. Pydantic calls ``parse`` for text, the reference
prints ``allowed``, and whatever leaves the process (log line, ``config show``) goes through
``show``. Durations and sizes are whole milliseconds and bytes, read and written back without loss.
Secrets in files are read at the start, and again whenever one is asked for: a file that cannot be
read for a moment changes nothing, and a secret that travels takes along what is known.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args
from urllib.parse import SplitResult, urlsplit

from pydantic import SecretStr
from pydantic_core import core_schema

from hapax.claims.store import KINDS, kind_of
from hapax.core.durations import DURATION_UNITS, QUANTITY, duration_ms, moment_ms, whole_units
from hapax.core.span import WORDS, offsets_of
from hapax.processing.identity import id_source
from hapax.settings.redaction import HIDDEN, hidden, secrets_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})
_SIZE_UNITS: Final = {
    "": 1,
    "b": 1,
    "kb": 1_000,
    "mb": 1_000**2,
    "gb": 1_000**3,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}
# Largest first; 90s and 24h read better than 1.5m and 1d, so a unit must fit at least twice
# before it replaces the one below. Seconds always win over milliseconds.
_DURATION_STEPS: Final = (("d", 2), ("h", 2), ("m", 2), ("s", 1))
_SIZE_STEPS: Final = ("GiB", "MiB", "KiB", "GB", "MB", "kB")

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SERVER: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")
_PORT_MAX: Final = 65_535
_POINT: Final = (
    "a time (`2030-01-31T12:00Z`) · an age (`7d`) · comma list of `topic/partition/offset`"
)
_FORMS: Final = [f"`{scheme}://…`" for scheme in KINDS]
_FILE_BYTES_MAX: Final = 1 << 16
_SIZE_HINT: Final = "write a size like 16MiB, 512KiB, 1MB or a plain number of bytes"


class FileText(str):
    """What was in a file, and where the file is."""

    __slots__ = ("path",)
    path: str


class FiledSecret(SecretStr):
    """A secret whose value is that of its file now; ``parse``: from its text, or ValueError."""

    def __init__(self, value: str, path: str, parse: Callable[[str], str]) -> None:
        super().__init__(value)
        self.path = path
        self._parse = parse

    def get_secret_value(self) -> str:
        with suppress(ValueError):
            self._secret_value = self._parse(read_text("the file", self.path))
        return self._secret_value

    def problem(self) -> str:
        """Return why the file cannot be used now; empty: it can."""
        try:
            self._parse(read_text("the file", self.path))
        except ValueError as error:
            return str(error)
        return ""


def read_text(name: str, path: str) -> FileText:
    """Return what a file holds; raise ValueError with a whole sentence that begins with ``name``.

    The sentence holds nothing of the file.
    """
    # A text without a slash may be the secret itself, set in the wrong variable.
    label = f"{name}={json.dumps(path)}" if "/" in path else name
    try:
        with Path(path).open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
        text = FileText(content.decode().rstrip("\r\n"))
    except UnicodeDecodeError:
        raise ValueError(f"{label}: the file is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "the path is not valid"
        raise ValueError(f"{label}: the file cannot be read: {why}") from None
    if len(content) > _FILE_BYTES_MAX:
        raise ValueError(f"{label}: the file is too large for a secret")
    if not text:
        raise ValueError(f"{label}: the file is empty")
    text.path = path
    return text


@dataclass(frozen=True)
class Form:
    """One kind of value.

    allowed   what may be written, for the reference
    parse     text to value; raises ValueError with one reason per argument
    show      value to text, without what is secret
    secret    never in errors, logs or on a screen; may come from a file
    quotable  the text as given may be repeated in an error
    filed     may come from a file, although it can be no secret, too
    parts     from the text to what must not be seen of it, wherever it turns up
    """

    allowed: str
    parse: Callable[[str], Any]
    show: Callable[[Any], str] = str
    secret: bool = False
    quotable: bool = True
    filed: bool = False
    parts: Callable[[str], Iterable[str]] = secrets_in

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], core_schema.CoreSchema]
    ) -> core_schema.CoreSchema:
        """Put ``parse`` before the field's own type; values that are no text go straight on."""
        return core_schema.no_info_before_validator_function(self._read, handler(source))

    def _read(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if self.secret and isinstance(value, FileText):
            return FiledSecret(self.parse(value), value.path, self.parse)
        return self.parse(value)


def duration(low: str, high: str) -> Form:
    return Form(f"duration, {low} to {high}", _within(duration_ms, low, high), show=duration_text)


def size(low: str, high: str) -> Form:
    return Form(f"size, {low} to {high}", _within(size_bytes, low, high), show=size_text)


def whole(low: int, high: int, why: str = "") -> Form:
    hint = f"write a whole number from {low} to {high}{why and ': '}{why}"

    def parse(text: str) -> int:
        # isdecimal alone accepts digits of other scripts; the length bounds the conversion.
        short = text.isascii() and text.isdecimal() and len(text) <= len(str(high))
        if not (short and low <= int(text) <= high):
            raise ValueError(hint)
        return int(text)

    return Form(f"whole number, {low} to {high}", parse)


def share() -> Form:
    hint = "write a share from 0 to 1 or from 0% to 100%, like 0.1 or 10%"

    def parse(text: str) -> float:
        number = text.removesuffix("%")
        if not (number.isascii() and number.replace(".", "", 1).isdecimal()):
            raise ValueError(hint)
        value = float(number) / (100 if text.endswith("%") else 1)
        if value > 1:
            raise ValueError(hint)
        return value

    return Form("share, 0 to 1 or 0% to 100%", parse)


def choice(literal: object) -> Form:
    words: tuple[str, ...] = get_args(literal)

    def parse(text: str) -> str:
        for word in words:
            if word.lower() == text.lower():
                return word
        raise ValueError(f"choose one of {', '.join(words)}")

    return Form(" · ".join(words), parse)


def flag() -> Form:
    def parse(text: str) -> bool:
        word = text.lower()
        if word not in _TRUE | _FALSE:
            raise ValueError("write true or false (yes, no, on, off, 1 and 0 are read too)")
        return word in _TRUE

    return Form("true · false", parse, show=lambda value: "true" if value else "false")


def _within(read: Callable[[str], int], low: str, high: str) -> Callable[[str], int]:
    least, most = read(low), read(high)

    def parse(text: str) -> int:
        value = read(text)
        if not least <= value <= most:
            raise ValueError(f"it must lie between {low} and {high}")
        return value

    return parse


def duration_text(value_ms: int) -> str:
    """Write milliseconds so that ``duration_ms`` reads the same number again."""
    for unit, least in _DURATION_STEPS:
        count, rest = divmod(value_ms, DURATION_UNITS[unit])
        if rest == 0 and count >= least:
            return f"{count}{unit}"
    return f"{value_ms}ms"


def size_bytes(text: str) -> int:
    """Read ``16MiB`` (2**20) and ``1MB`` (10**6); a plain number is bytes."""
    match = QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(_SIZE_HINT)
    factor = _SIZE_UNITS.get(match[3].lower())
    if factor is None:
        raise ValueError(f"{match[3]} is no unit of size here; {_SIZE_HINT}")
    return whole_units(match[1], match[2] or "", factor, "a byte")


def size_text(value_bytes: int) -> str:
    """Write bytes so that ``size_bytes`` reads the same number again."""
    for unit in _SIZE_STEPS:
        count, rest = divmod(value_bytes, _SIZE_UNITS[unit.lower()])
        if rest == 0 and count:
            return f"{count}{unit}"
    return str(value_bytes)


def _items(text: str) -> tuple[str, ...]:
    items = tuple(item.strip() for item in text.split(","))
    if "" in items:
        raise ValueError("an item of the list is empty: remove the extra comma")
    if len(set(items)) < len(items):
        raise ValueError("an item is in the list more than once")
    return items


def _list_of(
    one: Callable[[str], str],
    allowed: str,
    *,
    item: Callable[[str], str] = str,
    quotable: bool = True,
) -> Form:
    """``one``: reads an item; ``item``: shows it."""
    return Form(
        f"comma list of {allowed}",
        lambda text: tuple(map(one, _items(text))),
        show=lambda items: ",".join(map(item, items)),
        quotable=quotable,
    )


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


def _error(name: str) -> str:
    if not all(word.isidentifier() and not iskeyword(word) for word in name.split(".")):
        raise ValueError("write types of exceptions, like TimeoutError or shop.prices.Busy")
    return name


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("it holds a line break or another character that cannot be printed")
    return text


def _place(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() in words:
            return text.lower()
        try:
            if offsets_of(text) is None:
                moment_ms(text, 0)
        except ValueError as error:
            raise ValueError(f"choose one of {', '.join(words)}, or {error}") from None
        return text

    return parse


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
TOPICS: Final = _list_of(_topic, "topic names")
GROUPS: Final = _list_of(_one_line, "consumer groups")
# Not quotable: people put logins into addresses.
SERVERS: Final = Form("comma list of `host:port`", _servers, quotable=False)
FUNCTION: Final = Form("`package.module:function`", _function)
START: Final = Form(f"{' · '.join(WORDS)} · {_POINT}", _place(*WORDS))
END: Final = Form(f"latest · {_POINT}", _place("latest"))
ERRORS: Final = _list_of(_error, "types of exceptions")
ID_SOURCES: Final = _list_of(
    lambda text: id_source(text).text,
    "`cloudevents`, `header:<name>`, `json:/pointer`, `key`; `+` joins parts of one",
)
TEXT: Final = Form("text", _one_line)
PATH: Final = Form("path", _one_line)
PATHS: Final = _list_of(_one_line, "paths")
# Storage and clusters take logins in their addresses, whatever one may think of it.
ADDRESS: Final = Form("text", _one_line, show=hidden, quotable=False)
HTTP_URL: Final = Form(
    "`https://…` or `http://…`", _http_url, show=hidden, quotable=False, filed=True
)
HTTP_URLS: Final = _list_of(_http_url, "`https://…` or `http://…`", item=hidden, quotable=False)
SECRET: Final = Form(
    "text", _secret, show=lambda _: HIDDEN, secret=True, quotable=False, parts=lambda text: (text,)
)
CLAIMS_URL: Final = Form(
    f"{', '.join(_FORMS[:-1])} or {_FORMS[-1]}",
    _claims_url,
    # The query is hidden as a whole: clients read a password from there, too.
    show=lambda url: hidden(url.get_secret_value()),
    secret=True,
    quotable=False,
    parts=_claims_url_parts,
)
