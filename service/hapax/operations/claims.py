"""Composition of ``hapax claims``: look claims up, forget them, rebuild them from outputs."""

from __future__ import annotations

import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import msgspec

from hapax.core.dead_letters import dead_letter, is_note
from hapax.core.errors import ConfigurationError, HapaxError
from hapax.core.headers import ID, SOURCE, coordinates
from hapax.core.records import Record
from hapax.kafka.admin.adoption import cluster_id
from hapax.kafka.read.offsets_client import BlockingOffsets
from hapax.operations.claim_sources import ClaimSources
from hapax.operations.reading import read_ranges
from hapax.wiring.claims import claim_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hapax.core.claim_store import ClaimStore, Owned
    from hapax.core.records import Coordinates
    from hapax.operations.reading import Tell
    from hapax.settings import Settings

IDS_AT_ONCE = 2_000


class Rebuilt(msgspec.Struct, kw_only=True):
    """What became of the outputs and dead letters that were read.

    records    read, younger than the bound; older: left alone, for their claims would be over
    claimed    ids that now belong to the record they came from, whether before or just now
    elsewhere  ids that belong to another record: replays, duplicates that passed, new claims
    untold     ids of which more than one source may have been the origin
    without_id outputs of records without an id
    foreign    records that no record of this pipeline wrote
    """

    records: int = 0
    older: int = 0
    claimed: int = 0
    elsewhere: int = 0
    untold: int = 0
    without_id: int = 0
    foreign: int = 0


class PipelineClaims:
    """The claims of one pipeline."""

    def __init__(self, settings: Settings, store: ClaimStore) -> None:
        self._settings = settings
        self._store = store
        self.sources = ClaimSources(settings.dedup.id)
        self.emptied = False

    def owners(self, event_id: bytes) -> dict[str, Owned]:
        """Return, by source of ids, who owns it there."""
        found = {
            source: self._store.owner(claim)
            for source, claim in self.sources.candidates(event_id).items()
        }
        return {source: owned for source, owned in found.items() if owned is not None}

    def forget(self, event_id: bytes, source: str) -> bool:
        """Forget the claim of one source; whether there was one."""
        return self._store.forget(self.sources.candidates(event_id)[source])

    def rebuild(self, since_ms: int | None, more_topics: Sequence[str], tell: Tell) -> Rebuilt:
        """Claim again what outputs and dead letters say; may be repeated at any time.

        Dead letters first: a replayed record has outputs, too, and its claim is its original's.
        Raises HapaxError when the store is emptied meanwhile.
        """
        if since_ms is None:
            since_ms = int(time.time() * 1000) - self._settings.dedup.ttl_ms
        self._store.cluster_id = cluster_id(self._settings)
        rebuilt = Rebuilt()
        dead = self._settings.dead_letter.topic
        with closing(BlockingOffsets(self._settings)) as client:
            for topics in ([dead] if dead else [], [self._settings.output.topic, *more_topics]):
                self._rebuild(client, list(dict.fromkeys(topics)), since_ms, rebuilt, tell)
        return rebuilt

    def _rebuild(
        self,
        client: BlockingOffsets,
        topics: list[str],
        since_ms: int,
        rebuilt: Rebuilt,
        tell: Tell,
    ) -> None:
        places = client.partitions(topics) if topics else []
        starts, ends = client.at_time(places, since_ms), client.last_stable(places)
        spans = {where: (starts.get(where, end), end) for where, end in ends.items()}
        for chunk in read_ranges(self._settings, spans, tell, f"reading {', '.join(topics)}"):
            # Notes of what was replayed are of no record.
            effects = [seen.record for seen in chunk if not is_note(seen.record)]
            self._claim(effects, since_ms, rebuilt)
            if self.emptied:
                raise HapaxError(
                    "the claim store was emptied again while claims were rebuilt: run it again"
                )

    def _claim(self, records: list[Record], since_ms: int, rebuilt: Rebuilt) -> None:
        ids: list[bytes] = []
        owners: list[Record] = []
        for record in records:
            if record.timestamp_ms < since_ms:
                rebuilt.older += 1
                continue
            rebuilt.records += 1
            claim, owner = self._effect(record, rebuilt)
            if claim and owner is not None:
                ids.append(claim)
                owners.append(Record(*owner, None, None))
        for at in range(0, len(ids), IDS_AT_ONCE):
            batch = ids[at : at + IDS_AT_ONCE]
            others = self._store.claim(batch, owners[at : at + IDS_AT_ONCE], {})
            rebuilt.elsewhere += len(others)
            rebuilt.claimed += len(batch) - len(others)

    def _effect(self, record: Record, rebuilt: Rebuilt) -> tuple[bytes | None, Coordinates | None]:
        """Return the claim that a record of this pipeline stands for, and its owner."""
        headers = dict(record.headers)
        event_id, source = headers.get(ID), headers.get(SOURCE)
        letter = dead_letter(record)
        owner = letter.original if letter is not None else coordinates(source)
        foreign = letter is not None and letter.app != self._settings.app
        if not event_id or owner is None or foreign or not self._ours(owner):
            rebuilt.foreign += 1
        elif event_id == source:
            rebuilt.without_id += 1
        else:
            claim = self.sources.claim_of(record, event_id)
            rebuilt.untold += claim is None
            return claim, owner
        return None, None

    def _ours(self, owner: Coordinates) -> bool:
        return owner.topic in self._settings.input.topics


@contextmanager
def claims(settings: Settings) -> Iterator[PipelineClaims]:
    """Open the claims for the block. Raises ConfigurationError where there is no claim store."""

    def emptied() -> None:
        asked.emptied = True

    store = claim_store(settings, on_emptied=emptied)
    if store is None:
        raise ConfigurationError(
            ["HAPAX_DEDUP__REDIS_URL is not set: this pipeline makes no claims"]
        )
    asked = PipelineClaims(settings, store)
    with closing(store):
        yield asked
