"""Micro-batches of a streaming query, and the marker of which of them are published.

The marker is a committed offset, written in the transaction of the micro-batch itself: its number
is that of the next micro-batch, its metadata names the query and what the last one read. A query
takes the same micro-batch again after every doubt; the marker shows whether it was published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hapax.core.errors import PositionLostError
from hapax.core.headers import BATCH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hapax.core.records import Progress, Record, TopicPartition

_FORM, _FORM_FIXED = "hapax1", "hapax2"
"""A version that knows only the first refuses the second: it must not publish next to it."""
_WORDS = 3
_HEADER_WORDS = 3
_UNKNOWN = "-"

WHAT_TO_DO = "docs/dataframes.md, section Stops, describes how to continue"
NOTHING_PUBLISHED = f"Nothing of this micro-batch was published. {WHAT_TO_DO}"


class MicroBatch(NamedTuple):
    """One micro-batch, the same whenever it is taken again.

    query   the streaming query's id, which lives in its checkpoint
    number  counts from 0
    inputs  fingerprint of the offsets that the checkpoint holds for it; empty: not known
    """

    query: str
    number: int
    inputs: str = ""

    def header(self, row: int, app: str) -> bytes:
        """Return what a published record carries as ``BATCH``.

        No two visible records of one app share it. The app comes last, for a topic may hold the
        output of several; no name of an app contains a slash.
        """
        return f"{self.query}/{self.number}/{row}/{app}".encode()


class PublishedRecord(NamedTuple):
    """A record of the output topics that a micro-batch of this app has published."""

    topic: str
    partition: int
    offset: int
    query: str
    number: int

    @classmethod
    def parse(cls, record: Record, app: str) -> PublishedRecord | None:
        """Read the record's header; None when no micro-batch of the app wrote it.

        A header without an app counts as this app's: publishing twice is worse than stopping.
        """
        for name, value in record.headers:
            if name != BATCH or value is None:
                continue
            words = value.decode("utf-8", "replace").split("/")
            if len(words) < _HEADER_WORDS or not (words[1].isascii() and words[1].isdecimal()):
                continue
            if words[_HEADER_WORDS:] in ([], [app]):
                where = (record.topic, record.partition, record.offset)
                return cls(*where, words[0], int(words[1]))
        return None


class PublishedBatch(msgspec.Struct, frozen=True):
    """What became of a micro-batch.

    records   published by this call, by topic; none when they had been before
    repeated  whether the micro-batch had been published before
    attempts  transactions that it took
    """

    records: dict[str, int]
    repeated: bool
    attempts: int


class Marker(NamedTuple):
    """What was published last: everything of ``query`` below ``next``.

    ``fixed``: the choice of rows for ``next``, of which parts may be published.
    """

    next: int
    query: str
    inputs: str = ""
    fixed: FixedBatch | None = None

    @property
    def metadata(self) -> str:
        words = f"{self.query} {self.inputs or _UNKNOWN}"
        if self.fixed is None:
            return f"{_FORM} {words}"
        return f"{_FORM_FIXED} {words} {self.fixed.words}"

    @classmethod
    def after(cls, batch: MicroBatch) -> Marker:
        return cls(batch.number + 1, batch.query, batch.inputs)

    @classmethod
    def fixing(cls, batch: MicroBatch, former: Marker | None, fixed: FixedBatch) -> Marker:
        return cls(batch.number, batch.query, "" if former is None else former.inputs, fixed)

    @classmethod
    def parse(cls, number: int, metadata: str) -> Marker:
        """Read what was committed; raise PositionLostError when another program wrote it."""
        words = metadata.split(" ")
        fixed = FixedBatch.parse(words[_WORDS:]) if words[0] == _FORM_FIXED else None
        known = words[0] == _FORM and len(words) == _WORDS
        if fixed is None and not known:
            raise PositionLostError(
                f"the marker of the published micro-batches was overwritten: it says {number},"
                f" {metadata!r}. {NOTHING_PUBLISHED}"
            )
        return cls(number, words[1], "" if words[2] == _UNKNOWN else words[2], fixed)


def due(batch: MicroBatch, marker: Marker | None, published: PublishedRecord | None = None) -> bool:
    """Return whether the micro-batch is to be published, or has been.

    ``published``: a record of this app that was found in the output of a first micro-batch without
    marker. Raises PositionLostError where neither is certain: publishing would repeat effects, and
    not publishing would lose some.
    """
    if marker is None:
        if batch.number == 0:
            if published is not None:
                raise _lost(batch, _unmarked(batch, published))
            return True
        raise _lost(
            batch,
            "there is no marker of what was published before: it expired while the query was"
            " stopped (offsets.retention.minutes of the brokers), or the default topic or the app"
            " was changed",
        )
    if marker.query != batch.query:
        raise _lost(
            batch,
            f"micro-batches up to {marker.next - 1} were published by query {marker.query}: the"
            " checkpoint was lost or is another one, or another pipeline uses this app",
        )
    if marker.next == batch.number:
        if marker.fixed is not None and marker.fixed.inputs != (batch.inputs or _UNKNOWN):
            raise PositionLostError(
                f"micro-batch {batch.number} of query {batch.query} is not published: its rows were"
                f" chosen before, from other input ({marker.fixed.manifest}), and part of them may"
                " be published. The checkpoint is an old copy, or two queries run on it."
                " docs/dataframes.md, section Stops, describes how to continue"
            )
        return True
    if marker.next < batch.number:
        raise _lost(
            batch,
            f"the marker says that {marker.next} is the next to publish: it was moved back, or"
            " the brokers lost it",
        )
    same = not (marker.inputs and batch.inputs) or marker.inputs == batch.inputs
    if marker.next == batch.number + 1 and same:
        return False
    raise _lost(
        batch,
        f"micro-batches up to {marker.next - 1} were published already, the last of other input:"
        " the checkpoint is an old copy, or two queries run on it",
    )


def _unmarked(batch: MicroBatch, published: PublishedRecord) -> str:
    where = f"{published.topic}/{published.partition}/{published.offset}"
    found = f"{where} is a record of micro-batch {published.number} of query {published.query}"
    gone = "and the marker of what was published is gone (offsets.retention.minutes of the brokers)"
    if published.query == batch.query:
        return (
            f"{found}, {gone}: find the highest number of this query in the {BATCH} headers"
            f' of the output, then call hapax.spark.set_marker(query="{batch.query}", number=…)'
            " with the next one"
        )
    return (
        f"{found}, {gone}; the checkpoint was lost, too, or is another one, so all of the input"
        " would be published again. Bring the checkpoint back and set the marker; or choose a new"
        " app; or, to publish the input again on purpose, call"
        f' hapax.spark.set_marker(query="{batch.query}", number=0)'
    )


def _lost(batch: MicroBatch, why: str) -> PositionLostError:
    return PositionLostError(
        f"micro-batch {batch.number} of query {batch.query} is not published: {why}."
        f" {NOTHING_PUBLISHED}"
    )


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """What one micro-batch came to, for telemetry.

    inputs     records read, by topic
    outputs    records published, by topic; empty when it had been published before
    repeated   whether it had
    attempts   transactions that it took
    phases_s   seconds by phase: plan, work, publish, total
    lags       per partition, records that have arrived and are not read yet
    untimed    records read that have no timestamp (-1)
    late       rows that came after the watermark and were dropped by the pipeline's own rules
    state_rows, state_bytes  of all stateful operators together
    watermark  as Spark shows it; empty when there is none
    """

    number: int
    inputs: dict[str, int]
    outputs: dict[str, int] = {}
    repeated: bool = False
    attempts: int = 1
    phases_s: dict[str, float] = {}
    lags: dict[TopicPartition, int] = {}
    untimed: int = 0
    late: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    watermark: str = ""


# -- Micro-batches whose rows are chosen before any is visible ------------------------------------


_WORDS_FIXED = 4
_WORDS_OF_LANE = 2


class FixedBatch(NamedTuple):
    """Which rows of a micro-batch are published, and what they were made from.

    manifest  name of the file that names them; no two have the same
    checksum  of that file
    lanes     their number
    inputs    fingerprint of the micro-batch's input, see ``MicroBatch``
    """

    manifest: str
    checksum: str
    lanes: int
    inputs: str

    @property
    def words(self) -> str:
        return f"{self.manifest} {self.checksum} {self.lanes} {self.inputs or _UNKNOWN}"

    @classmethod
    def parse(cls, words: Sequence[str]) -> FixedBatch | None:
        """Read the words; None when another program wrote them."""
        if len(words) != _WORDS_FIXED or not words[2].isdecimal():
            return None
        return cls(words[0], words[1], int(words[2]), words[3])


class LaneMarker(NamedTuple):
    """How many parcels of a manifest a lane has published."""

    done: int
    manifest: str

    @property
    def metadata(self) -> str:
        return f"{_FORM} {self.manifest}"

    @classmethod
    def parse(cls, number: int, metadata: str) -> LaneMarker | None:
        """Read what was committed; None when another program wrote it."""
        words = metadata.split(" ")
        if len(words) != _WORDS_OF_LANE or words[0] != _FORM:
            return None
        return cls(number, words[1])


GIVEN_UP = LaneMarker(0, _UNKNOWN)
"""The marker of a lane that has nothing to publish, because a person decided so."""


def published_parcels(lane: int, manifest: str, marker: LaneMarker | None) -> int:
    """Return how many parcels of this manifest the lane has published.

    Raises PositionLostError when its marker does not know the manifest: it may have published all
    or nothing of it, so neither publishing nor passing on is certain.
    """
    if marker is not None and marker.manifest == manifest:
        return marker.done
    found = "is gone" if marker is None else f"belongs to {marker.manifest}"
    raise PositionLostError(
        f"lane {lane} does not publish its part of {manifest}: its marker {found}, so what it has"
        " published of it is not known. Another query runs on this app, or the brokers or another"
        " program removed the marker. docs/dataframes.md, section Stops, describes how to continue"
    )


# -- Which logs the offsets of a checkpoint belong to ---------------------------------------------


Anchors = dict["TopicPartition", tuple[int, int]]
"""Per partition an offset, and the epoch of the leader from which the log was read before it."""


class InputLogs(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint belongs to, kept next to it.

    app      whose checkpoint it is
    output   its default topic, at which its marker is committed
    cluster  Kafka's id of the cluster; None: the brokers are too old to say
    topics   Kafka's id of each input topic that has one (KIP-516)
    epochs   per input topic and partition, the epoch of its leader (KIP-320)
    """

    app: str
    output: str
    cluster: str | None = None
    topics: dict[str, str] = {}
    epochs: dict[str, dict[int, int]] = {}

    def require_same(self, now: InputLogs) -> None:
        """Raise PositionLostError when the brokers have another cluster or topic by now."""
        if None not in {self.cluster, now.cluster} and self.cluster != now.cluster:
            raise PositionLostError(
                f"the checkpoint's offsets belong to cluster {self.cluster}, and the brokers are"
                f" those of {now.cluster}. {WHAT_TO_DO}"
            )
        for topic, known in self.topics.items():
            found = now.topics.get(topic, known)
            if found != known:
                raise PositionLostError(
                    f"{topic}: the checkpoint's offsets belong to a topic that was deleted (id"
                    f" {known}); the topic with this name now is a different one (id {found}), and"
                    f" its records below these offsets would never be read. {WHAT_TO_DO}"
                )

    def anchors(self, now: InputLogs, offsets: Progress) -> Anchors:
        """Return where the leader has changed since: its log may have been cut off below them."""
        return {
            (topic, number): (offsets[topic, number], epoch)
            for topic, leaders in self.epochs.items()
            for number, epoch in leaders.items()
            if (topic, number) in offsets and now.epochs.get(topic, {}).get(number, epoch) != epoch
        }

    def and_now(self, now: InputLogs) -> InputLogs:
        """Return what is known now; what brokers do not say at the moment stays as it was."""
        topics = self.topics | now.topics
        # Also of a topic that is missing: it may be recreated before the next start.
        epochs = self.epochs | {
            name: self.epochs.get(name, {}) | leaders for name, leaders in now.epochs.items()
        }
        cluster = self.cluster if now.cluster is None else now.cluster
        return msgspec.structs.replace(now, cluster=cluster, topics=topics, epochs=epochs)


def require_uncut(cut: Mapping[TopicPartition, str], offsets: Progress) -> None:
    """Raise PositionLostError for a log that was cut off; ``cut``: what its leader says."""
    for where, why in sorted(cut.items()):
        raise PositionLostError(
            f"{where[0]}/{where[1]}: the checkpoint's offset is {offsets[where]}, but the log was"
            f" cut off below it (unclean election) and may have been written again: {why}."
            f" {WHAT_TO_DO}"
        )
