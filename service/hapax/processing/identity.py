"""Step 2, identify: find each event's id, without which no duplicate can be recognised.

An id counts within its source: the key ``5`` and the header ``5`` are two events. Otherwise a
record that happens to carry another record's id in another place would be dropped. A further source
is one function here and its row in ``SOURCES``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hapax.core.errors import Poison
from hapax.core.headers import ID, PART, REPLAY_OF
from hapax.core.json_pointer import JsonPointer, decoded
from hapax.core.record_path import Identified
from hapax.core.records import Coordinates
from hapax.processing.retry_later import NOT_OURS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from hapax.core.headers import Retried
    from hapax.core.records import Headers, Record
    from hapax.processing.retry_later import RetryTopic

    Finder = Callable[[Record, Mapping[str, bytes | None]], bytes | None]

_HEADER: Final = re.compile(r"[^\s,]+")
_PARTS: Final = re.compile(r"(?:[^+]|\+\+)+|\+")
_NO_NUMBERS: Final = frozenset({b"NaN", b"Infinity", b"-Infinity"})
"""How serializers write numbers that JSON does not have: the same for all records that lack one."""
_NONE: Final = (None, b"")
"""What is no id: one that is empty would be that of many records."""
NAMES_MAX = 1000
"""Header names to remember: any program can choose them."""


class IdSource(NamedTuple):
    """One source of ids.

    text      as it is written in HAPAX_DEDUP__ID
    kind      the word that it begins with; of one with several parts those words, joined by +
    tag       what precedes the id in a claim: an id counts within its source
    find      the id in a record, whose headers come by lower-case name; None or empty: it has none.
              Raises Poison where that is unknown
    possible  whether an id can be one of this source
    proves    whether it is found in headers, which an output has as its record had them
    absent    where it proves: whether an output without it says that the record was without it
    header    the header that carries the id, or a part of it; "": there is none
    pointer   where the id is in a JSON value; None: it does not
    late      finds it in the value of a record that no header names; None: there is no such place
    """

    text: str
    kind: str
    tag: bytes
    find: Finder
    possible: Callable[[bytes], bool] = bool
    proves: bool = False
    absent: bool = True
    header: str = ""
    pointer: JsonPointer | None = None
    late: Finder | None = None


def id_source(text: str) -> IdSource:
    """Return the source that is written so; raise ValueError for none.

    ``+`` joins the parts of one id; in the name of a header or a member it is written twice.
    """
    parts = _PARTS.findall(text) or [text]
    if len(parts) == 1:
        return _single(text)
    if parts[1::2] != ["+"] * (len(parts) // 2) or "+" in {parts[0], parts[-1]}:
        raise ValueError(f"{text}: between two + there is no part of an id")
    made = [_single(part.strip()) for part in parts[::2]]
    if len({part.tag for part in made}) < len(made):
        raise ValueError(f"{text} names a part of its id twice")
    return _composite(text, made)


def _single(text: str) -> IdSource:
    kind, _, argument = text.replace("++", "+").partition(":")
    source = SOURCES[kind][1](text, argument) if kind in SOURCES else None
    if source is None:
        *first, last = (form for form, _ in SOURCES.values())
        raise ValueError(
            f"{text} is no source of an id: use {', '.join(first)} or {last}; + joins the parts of"
            " one id, like json:/source/table+json:/source/lsn+json:/op+key"
        )
    return source


def _cloudevents(text: str, _argument: str) -> IdSource | None:
    if text != "cloudevents":
        return None
    return IdSource(
        text,
        text,
        b"cloudevents\0",
        lambda record, headers: in_headers(record.value, headers),
        lambda event_id: all(event_id.partition(b"\0")),
        proves=True,
        absent=False,  # it may have been in the value, which business code may have replaced
        late=lambda record, _headers: _named(record.value, _read(record.value)),
    )


def _header(text: str, argument: str) -> IdSource | None:
    name = argument.lower()  # names match in any case
    if not _HEADER.fullmatch(argument):
        return None
    own = name == ID  # outputs carry Hapax's own header of this name in place of the record's
    tag = f"header:{name}\0".encode()
    finder: Finder = _of_output if own else lambda _record, headers: headers.get(name)
    return IdSource(text, "header", tag, finder, proves=not own, header=argument)


def _json(text: str, argument: str) -> IdSource | None:
    try:
        pointer = JsonPointer(argument)
    except ValueError:
        return None

    def find(record: Record, _headers: Mapping[str, bytes | None]) -> bytes | None:
        return _but_no_numbers(pointer.find(record.value))

    def possible(event_id: bytes) -> bool:
        return bool(event_id.decode(errors="ignore").encode() == event_id != b"") and (
            event_id not in _NO_NUMBERS
        )

    tag = f"json:{argument}\0".encode()
    return IdSource(text, "json", tag, find, possible, pointer=pointer)


def _key(text: str, _argument: str) -> IdSource | None:
    if text != "key":
        return None
    return IdSource(text, text, b"key\0", lambda record, _headers: record.key)


SOURCES: Final[dict[str, tuple[str, Callable[[str, str], IdSource | None]]]] = {
    "cloudevents": ("cloudevents", _cloudevents),
    "header": ("header:<name>", _header),
    "json": ("json:/pointer (RFC 6901)", _json),
    "key": ("key", _key),
}
"""By the word before the colon: how it is written, and what makes it of text and argument."""


def _composite(text: str, parts: Sequence[IdSource]) -> IdSource:
    """Return a source whose id has several parts, all of which a record must have.

    They are joined by ``+``; what is ``+`` or ``%`` in a part is written as in addresses, so that
    two lists of parts never make the same id.
    """

    def find(record: Record, headers: Mapping[str, bytes | None]) -> bytes | None:
        found, data = [], _UNREAD
        for part in parts:
            if part.pointer is not None:
                if data is _UNREAD:
                    data = decoded(record.value)
                one = _but_no_numbers(part.pointer.within(record.value, data))
            else:
                one = part.find(record, headers)
                if one in _NONE and part.late is not None:
                    one = part.late(record, headers)
            if one is None or one == b"":
                return None
            found.append(one.replace(b"%", b"%25").replace(b"+", b"%2B"))
        return b"+".join(found)

    def possible(event_id: bytes) -> bool:
        texts = [one.replace(b"%2B", b"+").replace(b"%25", b"%") for one in event_id.split(b"+")]
        return len(texts) == len(parts) and all(
            part.possible(one) for part, one in zip(parts, texts, strict=True)
        )

    return IdSource(
        text,
        "+".join(part.kind for part in parts),
        b"+" + b"".join(part.tag for part in parts),  # no single source's begins so
        find,
        possible,
        proves=all(part.proves for part in parts),
        absent=all(part.absent for part in parts),
        header=next((part.header for part in parts if part.header), ""),
    )


_UNREAD: Final[Any] = object()


def _but_no_numbers(found: bytes | None) -> bytes | None:
    return None if found in _NO_NUMBERS else found


def _of_output(_record: Record, headers: Mapping[str, bytes | None]) -> bytes | None:
    """Return id and part: outputs of one record share its id, after another pipeline too."""
    event_id, part = headers.get(ID), headers.get(PART)
    return event_id + b"\0" + part if event_id and part else event_id


class Identity:
    """The configured chain of id sources, tried in order."""

    def __init__(
        self,
        sources: Sequence[str],
        *,
        inputs: Collection[str] | None = None,
        retry: RetryTopic | None = None,
        claimed: bool = False,
    ) -> None:
        """Take the chain. ``inputs``: topics of which a record may be a replay.

        ``retry``: whose records have the claims of those that they stand for.
        ``claimed``: ids are; then events that have none of their own are poison.
        None: replays are not recognised. Owners are kept by topic, partition and offset, in their
        types, and the store never forgets a topic: a name that a sender made up must not reach it.
        """
        # The source precedes the id, not its place in the chain: a chain that is changed
        # must not take one source's ids for another's.
        made = [id_source(source) for source in sources]
        self._chain = list(_steps(made))
        self._events = claimed and any("cloudevents" in one.kind.split("+") for one in made)
        self._inputs = None if inputs is None else frozenset(inputs)
        self._retry = retry
        self._plain: set[str] = set()

    def identify(self, records: Sequence[Record]) -> Identified:
        """Find the ids of a batch; never raises for what a record holds."""
        ids: list[bytes] = []
        claims: list[bytes] = []
        found = Identified(ids=ids, claims=claims, replays={}, poison={})
        for index, record in enumerate(records):
            headers = dict(record.headers)
            if len(headers) < len(record.headers) or not headers.keys() <= self._plain:
                headers = self._folded(record.headers)
            try:
                if REPLAY_OF in headers and self._inputs is not None:
                    found.replays[index] = _original(headers[REPLAY_OF], self._inputs)
                elif self._retry is not None and record.topic == self._retry.name:
                    found.replays[index] = _waited(self._retry.read(record))
                tag, event_id = self._first(record, headers)
            except Poison as poison:
                found.poison[index] = poison
                tag = event_id = b""
            ids.append(event_id)
            claims.append(tag + event_id if event_id else b"")
        return found

    def _first(self, record: Record, headers: dict[str, bytes | None]) -> tuple[bytes, bytes]:
        for tag, find in self._chain:
            if event_id := find(record, headers):
                return tag, event_id
        if self._events and (problem := unclaimable(record.value, headers)):
            raise Poison(problem)
        return b"", b""

    def _folded(self, headers: Headers) -> dict[str, bytes | None]:
        """Return headers by lower-case name, the last one of a name that is not empty.

        Names are case-sensitive in Kafka and rarely so in people's minds; an exact name wins over
        one in other case. Names that are lower case are remembered, so that a usual record pays for
        one comparison of sets only.
        """
        # What holds nothing comes first: it hides no other.
        pairs = sorted(headers, key=lambda pair: bool(pair[1]))
        exact = [pair for pair in pairs if pair[0] == pair[0].lower()]
        if len(self._plain) < NAMES_MAX:
            self._plain.update(name for name, _value in exact)
        if len(exact) == len(pairs):
            return dict(pairs)
        return {name.lower(): value for name, value in pairs} | {
            name: value for name, value in exact if value
        }


def _steps(sources: Sequence[IdSource]) -> Iterator[tuple[bytes, Finder]]:
    """Yield those that look in values after the headers that follow, which cost less to ask."""
    late: list[tuple[bytes, Finder]] = []
    for source in sources:
        if source.kind != "header":
            yield from late
            late = []
        yield source.tag, source.find
        if source.late is not None:
            late.append((source.tag, source.late))
    yield from late


def _waited(retried: Retried | None) -> Coordinates:
    if retried is None:
        raise Poison(NOT_OURS)
    return Coordinates.parse(retried.of)


def _original(text: bytes | None, inputs: frozenset[str]) -> Coordinates:
    try:
        original = Coordinates.parse((text or b"").decode())
    except ValueError as error:
        raise Poison(f"header {REPLAY_OF} must be topic/partition/offset") from error
    if original.topic not in inputs:
        raise Poison(f"header {REPLAY_OF} must name a record of HAPAX_INPUT__TOPICS")
    return original


# -- CloudEvents 1.0 in Kafka records: where an event has its id ----------------------------------


_TYPE: Final = b"application/cloudevents"
_STRUCTURED: Final = b"application/cloudevents+json"
_MEMBER: Final = b'"specversion"'
_BEGINS: Final = frozenset(b"{[ \t\r\n\xef\0\1")
"""First bytes of JSON objects and lists, after a byte-order mark or the id of a schema, too."""
_ID, _SOURCE = JsonPointer("/id"), JsonPointer("/source")


def in_headers(value: bytes | None, headers: Mapping[str, bytes | None]) -> bytes | None:
    """Return source NUL id of an event that its headers announce; None: they announce none.

    ``headers``: by lower-case name. Raises Poison for a structured event that is no JSON.
    """
    event_id = headers.get("ce_id") or headers.get("ce-id")
    source = headers.get("ce_source") or headers.get("ce-source")
    if not event_id:
        if _media_type(headers) != _STRUCTURED:
            return None
        data = decoded(value)
        event_id, source = _ID.within(value, data), _SOURCE.within(value, data)
    return source + b"\0" + event_id if event_id and source else None


def unclaimable(value: bytes | None, headers: Mapping[str, bytes | None]) -> str:
    """Return why a record that holds events has no id of one; empty: it holds none."""
    media_type = _media_type(headers)
    several = media_type.startswith(_TYPE + b"-batch")
    if not several:
        data = _read(value)
        several = isinstance(data, list) and any(_named(value, each) for each in data)
    if several:
        return (
            "it is a batch of CloudEvents, each with an id of its own: write an event a record, or"
            " name an id of the whole batch in HAPAX_DEDUP__ID, like header:message-id"
        )
    if media_type.startswith(_TYPE + b"+") and media_type != _STRUCTURED:
        return (
            f"it is a CloudEvent of the type {media_type.decode(errors='replace')[:80]}, whose id"
            " cannot be read: write binary or JSON events, or name an id outside of the value in"
            " HAPAX_DEDUP__ID, like header:message-id"
        )
    return ""


def _media_type(headers: Mapping[str, bytes | None]) -> bytes:
    told = headers.get("content-type")
    return told.partition(b";")[0].strip().lower() if told else b""


def _read(value: bytes | None) -> object:
    if value is None or value == b"" or value[0] not in _BEGINS or _MEMBER not in value:
        return None
    try:
        return decoded(value)
    except Poison:
        return None  # whatever it is, it does not say that it is an event


def _named(value: bytes | None, event: object) -> bytes | None:
    """Return source NUL id of a value that is an event by its members; None: it is none."""
    if not isinstance(event, dict):
        return None
    event_id, source = _ID.within(value, event), _SOURCE.within(value, event)
    return source + b"\0" + event_id if event_id and source and "specversion" in event else None
