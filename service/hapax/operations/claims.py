"""Composition of ``hapax claims``: look claims up, forget, rebuild and adopt them.

A claim is the id with the source where it was found; the header ``hapax-id`` of an output holds
the id alone. An output keeps its record's headers, so sources that are headers can be asked again;
key and value may have become others. Where more than one source may have given the id, nothing is
guessed: a claim under a wrong source could drop a sound event.
"""

from __future__ import annotations

import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from hapax.core.errors import ConfigurationError, HapaxError
from hapax.core.headers import ID, SOURCE, coordinates
from hapax.core.offset_commit import CommittedMetadata
from hapax.core.records import Record
from hapax.kafka.admin.topics import cluster_id, topic_ids
from hapax.kafka.produce.standalone import GroupOffsets
from hapax.kafka.read.offsets_client import BlockingOffsets
from hapax.operations.reading import read_ranges
from hapax.processing.dead_letters import dead_letter, is_note
from hapax.processing.identity import Identity, id_source
from hapax.wiring.builders import claim_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hapax.core.ports import ClaimStore, Owned, Tell
    from hapax.core.records import Progress
    from hapax.settings import Settings

IDS_AT_ONCE = 2_000


class ClaimSources:
    """The configured chain of id sources, each by itself."""

    def __init__(self, sources: Sequence[str]) -> None:
        self._chain = [(id_source(source), Identity([source])) for source in sources]

    def candidates(self, event_id: bytes) -> dict[str, bytes]:
        return {one.text: one.tag + event_id for one, _ in self._chain if one.possible(event_id)}

    def claim_of(self, output: Record, event_id: bytes) -> bytes | None:
        unproven: list[bytes] = []
        for source, identity in self._chain:
            found = identity.identify([output])
            if source.proves and found.ids[0] == event_id:
                return None if unproven else found.claims[0]
            if source.proves and source.absent:
                continue
            if source.possible(event_id):
                unproven.append(source.tag + event_id)
        return unproven[0] if len(unproven) == 1 else None


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

    def owners(self, event_id: bytes, text: str) -> dict[str, Owned]:
        """Return who owns an id, by its source; raise HapaxError that names the ``text`` of it."""
        owners = {
            source: owned
            for source, claim in self.sources.candidates(event_id).items()
            if (owned := self._store.owner(claim)) is not None
        }
        if not owners:
            raise HapaxError(
                f"no claim exists for {text} (searched as {', '.join(self._settings.dedup.id)}): it"
                " was not seen within HAPAX_DEDUP__TTL, or its claim was forgotten"
            )
        return owners

    def forget(self, event_id: bytes, source: str) -> bool:
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
        outputs = list(dict.fromkeys([self._settings.output.topic, *more_topics]))
        with closing(BlockingOffsets(self._settings)) as client:
            for topics in ([dead], outputs) if dead else (outputs,):
                places = client.partitions(topics)
                starts, ends = client.at_time(places, since_ms), client.last_stable(places)
                spans = {where: (starts.get(where, end), end) for where, end in ends.items()}
                what = f"reading {', '.join(topics)}"
                for chunk in read_ranges(self._settings, spans, tell, what):
                    # Notes of what was replayed are of no record.
                    effects = [seen.record for seen in chunk if not is_note(seen.record)]
                    self._claim(effects, since_ms, rebuilt)
        return rebuilt

    def _claim(self, records: list[Record], since_ms: int, rebuilt: Rebuilt) -> None:
        young = [record for record in records if record.timestamp_ms >= since_ms]
        rebuilt.older += len(records) - len(young)
        rebuilt.records += len(young)
        found = [made for record in young if (made := self._effect(record, rebuilt)) is not None]
        for at in range(0, len(found), IDS_AT_ONCE):
            ids, owners = zip(*found[at : at + IDS_AT_ONCE], strict=True)
            others = self._store.claim(list(ids), list(owners), {})
            rebuilt.elsewhere += len(others)
            rebuilt.claimed += len(ids) - len(others)
        if self.emptied:
            raise HapaxError(
                "the claim store was emptied again while claims were rebuilt: run it again"
            )

    def _effect(self, record: Record, rebuilt: Rebuilt) -> tuple[bytes, Record] | None:
        headers = dict(record.headers)
        event_id, source = headers.get(ID), headers.get(SOURCE)
        letter = dead_letter(record)
        owner = letter.original if letter is not None else coordinates(source)
        foreign = letter is not None and letter.app != self._settings.app
        inputs = self._settings.input.topics
        if not event_id or owner is None or foreign or owner.topic not in inputs:
            rebuilt.foreign += 1
        elif event_id == source:
            rebuilt.without_id += 1
        elif (claim := self.sources.claim_of(record, event_id)) is None:
            rebuilt.untold += 1
        else:
            return claim, Record(*owner, None, None)
        return None


@contextmanager
def claims(settings: Settings) -> Iterator[PipelineClaims]:
    def emptied() -> None:
        asked.emptied = True

    store = claim_store(settings, on_emptied=emptied)
    if store is None:
        raise ConfigurationError("HAPAX_DEDUP__REDIS_URL is not set: this pipeline makes no claims")
    asked = PipelineClaims(settings, store)
    with closing(store):
        yield asked


class Adoption(msgspec.Struct, kw_only=True):
    """What moves to which cluster.

    here     Kafka's id of the cluster that answers
    before   the id that the claims had; None: none was written, or there is no claim store
    claims   whether there is a claim store
    offsets  of the group, committed again with the ids of this cluster in their metadata
    """

    here: str
    before: str | None
    claims: bool
    offsets: Progress = {}


class Adopting:
    """Looks first, then adopts. Raises PreflightError while the group has members."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._here = cluster_id(settings)

    def look(self) -> Adoption:
        GroupOffsets(self._settings).require_empty()
        store = claim_store(self._settings, cluster_id=self._here)
        if store is None:
            return Adoption(here=self._here, before=None, claims=False)
        with closing(store):
            return Adoption(here=self._here, before=store.cluster(), claims=True)

    def adopt(self) -> Adoption:
        """Adopt the offsets, then the claims; may be repeated when it was cut off in between."""
        found = self.look()
        found.offsets = recommit_here(self._settings, self._here)
        store = claim_store(self._settings, cluster_id=self._here)
        if store is not None:
            with closing(store):
                store.adopt()
        return found


def recommit_here(settings: Settings, here: str) -> Progress:
    """Commit the group's offsets again, with the ids of this cluster and its inputs.

    The offsets themselves stay. Return those that were committed again: all that the group has in
    the topics it reads. Raises PreflightError, and changes nothing, while the group has members,
    and when the brokers do not answer.
    """
    with closing(BlockingOffsets(settings)) as client:
        places, ids = client.partitions(settings.read_topics), topic_ids(settings)
        answers = client.answers(places, stable=True)
    new: dict[str, Any] = {"cluster_id": here, "changelog_id": None}
    # Without the leader's epoch: it counts the elections of the cluster that it came from.
    renewed = {
        where: (
            one.offset,
            msgspec.structs.replace(CommittedMetadata.of(one), topic_id=ids[where[0]], **new),
        )
        for where, one in answers.items()
        if one.offset >= 0
    }
    GroupOffsets(settings).commit(renewed)
    return {where: offset for where, (offset, _beside) in renewed.items()}
