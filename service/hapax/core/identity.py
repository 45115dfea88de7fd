"""Step 2, identify: find each event's id, without which no duplicate can be recognised.

An id counts within its source: the key ``5`` and the header ``5`` are two events. Otherwise a
record that happens to carry another record's id in another place would be dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hapax.core.cloud_events import unclaimable
from hapax.core.errors import Poison
from hapax.core.headers import REPLAY_OF
from hapax.core.id_sources import id_source
from hapax.core.record_path import Ids, RecordPath
from hapax.core.records import Coordinates
from hapax.core.retry_later import NOT_OURS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from hapax.core.headers import Retried
    from hapax.core.id_sources import Finder, IdSource
    from hapax.core.records import Headers, Record
    from hapax.core.retry_later import RetryTopic

NAMES_MAX = 1000
"""Header names to remember: any program can choose them."""


class Identified(msgspec.Struct, gc=False):
    """What step 2 found for the records of a batch, all by index.

    ids      the event's id as it goes into the header ``hapax-id``; b"" where none was found
    claims   the id with its source before it: what the claim store remembers
    replays  the coordinates that a replayed dead letter names as its original
    poison   records whose id cannot be read, with the reason
    """

    ids: Sequence[bytes]
    claims: Sequence[bytes]
    replays: dict[int, Coordinates]
    poison: dict[int, Poison]

    @property
    def complete(self) -> bool:
        """Whether every record has an id to claim."""
        if isinstance(self.claims, Ids):
            return not self.claims.missing
        return b"" not in self.claims


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
        if isinstance(records, RecordPath):
            return Identified(ids=records.ids, claims=records.claims, replays={}, poison={})
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
        pairs = sorted(headers, key=_holds)
        exact = [pair for pair in pairs if pair[0] == pair[0].lower()]
        if len(self._plain) < NAMES_MAX:
            self._plain.update(name for name, _value in exact)
        if len(exact) == len(pairs):
            return dict(pairs)
        return {name.lower(): value for name, value in pairs} | {
            name: value for name, value in exact if value
        }


def _holds(pair: tuple[str, bytes | None]) -> bool:
    return bool(pair[1])


def _steps(sources: Sequence[IdSource]) -> Iterator[tuple[bytes, Finder]]:
    """Yield tag and finder of each source, in order.

    What may be in a value is looked for after the headers that follow, which cost less to ask:
    a record that one of them names is not searched.
    """
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
