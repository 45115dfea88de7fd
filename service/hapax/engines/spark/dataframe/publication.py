"""How the rows of a micro-batch become visible: together, or in parts.

In parts: 1. the manifest is written, 2. its name is committed, 3. each lane publishes its parcels,
4. the marker says that all have. Whatever dies, a repetition finds the manifest and continues from
its step. A few rows are published together in any case: sharing them out would only take longer.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from hapax.core.errors import StopError
from hapax.core.fixed_batches import FixedBatch
from hapax.engines.spark.dataframe.parts import LanePlan, LaneReport, Manifest, check_reports
from hapax.engines.spark.dataframe.rows import Writing
from hapax.engines.spark.dataframe.staging import StagedRowsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from hapax.core.micro_batches import MicroBatch
    from hapax.core.ports import Message
    from hapax.core.topic_rules import RowNeeds
    from hapax.engines.spark.dataframe.checkpoint import InputLookup
    from hapax.engines.spark.dataframe.staging import Parcel, Spool

    Chunks = Callable[[], Iterable[Sequence[Message]]]

STAGED_AGAIN = (
    "Nothing of the micro-batch was published; start again, and its tasks write their rows again."
    " If this happens again, check the storage of the spool (option spool), and that nothing else"
    " writes there"
)


class PublishedParts(NamedTuple):
    """What became of a micro-batch; see ``PublishedBatch``."""

    records: dict[str, int]
    repeated: bool
    attempts: int


class MicroBatchPublisher(Protocol):
    """What publishes; see ``hapax.kafka.produce.micro_batch``."""

    def publish(self, batch: MicroBatch, chunks: Chunks) -> PublishedBatch | FixedBatch:
        """Make the micro-batch visible as a whole, unless it is, or rows of it are fixed."""

    def fix(self, batch: MicroBatch, fixed: FixedBatch, chunks: Chunks) -> FixedBatch | None:
        """Choose these rows, unless some are; return which hold, None when it is published."""

    def finish(self, batch: MicroBatch, fixed: FixedBatch) -> None:
        """Say that all lanes have published these rows."""


class PublishedBatch(Protocol):
    """What became of a micro-batch; see ``hapax.kafka.produce.micro_batch``."""

    @property
    def records(self) -> dict[str, int]:
        """Published by this call, by topic."""

    @property
    def repeated(self) -> bool:
        """Whether the micro-batch had been published before."""

    @property
    def attempts(self) -> int:
        """Transactions that it took."""


class Publishing(NamedTuple):
    """What a micro-batch is published with.

    publisher  of the whole
    app        whose micro-batch it is
    topic      of rows that name none
    inputs     topics that no row may name
    run        publishes lanes: side by side, or one after the other
    lanes      how many side by side; 0: together
    lookup     asks which logs the input has; None: not compared
    problems   says what topics would refuse of rows
    """

    publisher: MicroBatchPublisher
    app: str
    topic: str
    inputs: frozenset[str]
    run: Callable[[Sequence[LanePlan]], list[LaneReport]]
    lanes: int = 0
    lookup: InputLookup | None = None
    problems: Callable[[Mapping[str, RowNeeds]], list[str]] = lambda _needs: []


class Publication:
    """The publication of one micro-batch."""

    def __init__(
        self,
        publishing: Publishing,
        batch: MicroBatch,
        spool: Spool,
        parcels: Sequence[Parcel],
        needs: Mapping[str, RowNeeds] | None = None,
    ) -> None:
        """``needs``: what the rows ask of their topics."""
        self._needs = needs or {}
        self._publishing = publishing
        self._batch = batch
        self._spool = spool
        self._parcels = parcels

    def publish(self) -> PublishedBatch:
        try:
            return self._shared_out() if self._large else self._together()
        except StagedRowsError as error:
            raise StopError(f"{error.what}. {STAGED_AGAIN}") from error

    @property
    def _large(self) -> bool:
        size = sum(parcel.size for parcel in self._parcels)
        return (
            self._publishing.lanes > 1
            and sum(bool(parcel.rows) for parcel in self._parcels) > 1
            and size > self._spool.inline_bytes_max
        )

    def _together(self) -> PublishedBatch:
        done = self._publishing.publisher.publish(self._batch, self._chunks)
        if not isinstance(done, FixedBatch):
            return done
        self._spool.remove(self._parcels)  # others are published in their place
        return self._finished(done, Manifest.load(self._spool, done))

    def _shared_out(self) -> PublishedBatch:
        batch, spool = self._batch, self._spool
        problems = self._publishing.problems(self._needs)
        if problems:
            raise StopError(
                f"micro-batch {batch.number}: {'; '.join(problems)}. Nothing of it was published or"
                " fixed: correct what the pipeline writes, or the topic, and start again"
            )
        manifest = Manifest.of(batch, self._parcels, self._publishing.lanes)
        fixed = manifest.keep(spool, batch.inputs)
        holding = self._publishing.publisher.fix(batch, fixed, self._chunks)
        if holding is None:
            return PublishedParts({}, repeated=True, attempts=1)
        if holding != fixed:
            spool.remove(self._parcels)
            manifest = Manifest.load(spool, holding)
        return self._finished(holding, manifest)

    def _finished(self, fixed: FixedBatch, manifest: Manifest) -> PublishedBatch:
        reports = self._publishing.run([*self._plans(fixed, manifest)])
        check_reports(self._batch, fixed, reports)
        self._publishing.publisher.finish(self._batch, fixed)
        records = Counter[str]()
        for report in reports:
            records.update(report.records)
        attempts = max(report.attempts for report in reports)
        return PublishedParts(dict(records), repeated=not records, attempts=attempts)

    def _plans(self, fixed: FixedBatch, manifest: Manifest) -> Iterator[LanePlan]:
        publishing = self._publishing
        for lane, shares in enumerate(manifest.lanes):
            yield LanePlan(
                lane,
                fixed.manifest,
                shares,
                self._batch,
                publishing.app,
                publishing.topic,
                publishing.inputs,
                self._spool.address,
            )

    def _chunks(self) -> Iterator[list[Message]]:
        publishing = self._publishing
        writing = Writing(self._batch, publishing.app, publishing.topic, publishing.inputs)
        for parcel in self._parcels:
            yield from map(writing.messages, self._spool.rows(parcel))
