"""A micro-batch in parts: the manifest that shares its parcels out, and the tasks that publish.

core/fixed_batches.py says why a repetition publishes the same rows.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import PositionLostError, StopError
from hapax.core.fixed_batches import FixedBatch
from hapax.engines.spark.dataframe.rows import Writing
from hapax.engines.spark.dataframe.staging import Parcel, Place, Spool, StagedRowsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hapax.core.micro_batches import MicroBatch
    from hapax.core.ports import Message

_CHECKSUM_CHARS = 32
WHAT_TO_DO = "docs/dataframes.md, section Stops, describes how to continue"


class Share(msgspec.Struct, frozen=True):
    """Rows of one task as a part of the micro-batch; ``first``: the number of its first row."""

    first: int
    parcel: Parcel


class Manifest(msgspec.Struct, frozen=True):
    """Which rows a micro-batch is, and which lane publishes which, in this order."""

    query: str
    number: int
    lanes: tuple[tuple[Share, ...], ...]

    @classmethod
    def of(cls, batch: MicroBatch, parcels: Iterable[Parcel], lanes: int) -> Manifest:
        """Share the parcels out to at most so many lanes, each next one to the least loaded."""
        shares, first = [], 0
        for parcel in parcels:
            if parcel.rows:
                shares.append(Share(first, parcel))
            first += parcel.rows
        loads = [0] * min(lanes, len(shares))
        shared: list[list[Share]] = [[] for _ in loads]
        for share in sorted(shares, key=lambda share: -share.parcel.size):
            lane = loads.index(min(loads))
            loads[lane] += share.parcel.size
            shared[lane].append(share)
        return cls(batch.query, batch.number, tuple(tuple(lane) for lane in shared))

    def keep(self, spool: Spool, inputs: str) -> FixedBatch:
        """Write it; return what the marker says of it."""
        content = msgspec.msgpack.encode(self)
        name = spool.keep(self.number, content)
        return FixedBatch(name, _checksum(content), len(self.lanes), inputs)

    @classmethod
    def load(cls, spool: Spool, fixed: FixedBatch) -> Manifest:
        """Read it back; raise PositionLostError when it is gone or damaged."""
        try:
            content = spool.kept(fixed.manifest)
        except StagedRowsError as error:
            raise _lost(error.what) from error
        if _checksum(content) != fixed.checksum:
            raise _lost(f"{fixed.manifest} in the spool does not hold what was written")
        return msgspec.msgpack.decode(content, type=cls)


class LanePlan(msgspec.Struct, frozen=True):
    """What one task is to publish, as it travels to an executor."""

    lane: int
    manifest: str
    shares: tuple[Share, ...]
    batch: MicroBatch
    app: str
    topic: str
    inputs: frozenset[str]
    spool: str

    def parcels(self) -> list[Callable[[], Iterable[list[Message]]]]:
        """Return for each parcel what gives its messages."""
        spool = Spool(Place(self.spool), 0)

        def giving(share: Share) -> Callable[[], Iterable[list[Message]]]:
            def messages() -> Iterable[list[Message]]:
                writing = Writing(self.batch, self.app, self.topic, self.inputs, share.first)
                return map(writing.messages, spool.rows(share.parcel))

            return messages

        return [giving(share) for share in self.shares]


class LaneReport(msgspec.Struct, frozen=True):
    """What one task has published: parcels of its lane, and records of this call by topic.

    ``problem``: why it published no more. ``lost``: no repetition can help.
    """

    lane: int
    done: int
    parcels: int
    records: dict[str, int]
    attempts: int
    problem: str = ""
    lost: bool = False


def check_reports(batch: MicroBatch, fixed: FixedBatch, reports: Sequence[LaneReport]) -> None:
    """Raise unless every lane has published all it has, and say which have.

    PositionLostError when no repetition can help, StopError otherwise.
    """
    problems = [report for report in reports if report.problem]
    if len(reports) == fixed.lanes and not problems:
        return
    said = "; ".join(f"lane {report.lane}: {report.problem}" for report in problems)
    reached = ", ".join(
        f"{report.done} of {report.parcels} parcels of lane {report.lane}" for report in reports
    )
    text = (
        f"micro-batch {batch.number} of query {batch.query} is published in part ({reached}), and"
        f" its rows are fixed in {fixed.manifest}. {said or 'Reports of lanes are missing'}."
    )
    if any(report.lost for report in problems):
        raise PositionLostError(f"{text} {WHAT_TO_DO}")
    raise StopError(
        f"{text} The next start publishes the rest. A row that can never be sent is passed with"
        f' hapax.spark.set_marker(query="{batch.query}", number={batch.number}), which takes the'
        " micro-batch again as the pipeline is then and doubles what is published of it; with"
        f" number={batch.number + 1} the rest is given up"
    )


def _lost(what: str) -> PositionLostError:
    return PositionLostError(
        f"{what}: the rows of the micro-batch were fixed there, and part of them may be published."
        f" Bring the file back and start again; {WHAT_TO_DO}"
    )


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_CHECKSUM_CHARS]
