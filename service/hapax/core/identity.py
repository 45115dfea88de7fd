"""Step 2, identify: find each event's id, without which no duplicate can be recognised.

An id counts within its source: the key ``5`` and the header ``5`` are two events. Otherwise a
record that happens to carry another record's id in another place would be dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import Poison
from hapax.core.headers import REPLAY_OF
from hapax.core.id_sources import id_source
from hapax.core.record_path import Ids, RecordPath
from hapax.core.records import Coordinates
from hapax.core.retry_later import NOT_OURS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from hapax.core.headers import Retried
    from hapax.core.records import Record
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
    ) -> None:
        """Take the chain. ``inputs``: topics of which a record may be a replay.

        ``retry``: whose records have the claims of those that they stand for.
        None: replays are not recognised. Owners are kept by topic, partition and offset, in their
        types, and the store never forgets a topic: a name that a sender made up must not reach it.
        """
        # The source precedes the id, not its place in the chain: a chain that is changed
        # must not take one source's ids for another's.
        made = [id_source(source) for source in sources]
        self._chain = [(source.tag, source.find) for source in made]
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
            if not headers.keys() <= self._plain:
                headers = self._folded(headers)
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
        return b"", b""

    def _folded(self, headers: dict[str, bytes | None]) -> dict[str, bytes | None]:
        """Return headers by lower-case name; an exact name wins over one in other case.

        Names are case-sensitive in Kafka and rarely so in people's minds. Names that are lower
        case are remembered, so that a usual record pays for one comparison of sets only.
        """
        lower = {name for name in headers if name == name.lower()}
        if len(self._plain) < NAMES_MAX:
            self._plain |= lower
        if len(lower) == len(headers):
            return headers
        return {name.lower(): value for name, value in headers.items()} | {
            name: headers[name] for name in lower
        }


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
