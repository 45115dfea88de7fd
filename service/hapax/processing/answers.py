"""Step 4 of a batch: which of its records are called, and what has been answered for all of them.

A record has its result without a call when it cannot be read or identified, when brokers have
refused its outputs, when it is a duplicate, when it was called in the batch that was aborted before
this one, and when an option knows it: one that waits for a later try and is not due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hapax.core.results import Failure, Undecided

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from hapax.core.interrupt import Interrupt
    from hapax.core.ports import AppliesAll
    from hapax.core.record_path import Batch, Identified, Preset, Results
    from hapax.core.records import Coordinates, Record
    from hapax.core.results import Result
    from hapax.processing.batch_result import Begun
    from hapax.processing.deduplicate import Claimed

    Rejected = Mapping[Coordinates, Failure]
    """Records whose outputs brokers have refused in an earlier attempt."""


class Around(Protocol):
    """What an option does around the calls of a batch."""

    def before(self, records: Sequence[Record]) -> Preset:
        """Return the results of records that are not to be called."""

    def after(
        self, records: Sequence[Record], results: list[Result | None], preset: Collection[int]
    ) -> list[Result | None]:
        """Return what the results come to, for all of them or for a prefix.

        ``preset``: indices of results that may be of an attempt before this one. Raises
        SchemasUnavailableError and StopError.
        """


class Answers:
    """Results of batches, from calls and from what is known without one.

    Between two batches it holds the results of one that was aborted.
    """

    def __init__(
        self, calls: AppliesAll, around: Sequence[Around], interrupt: Interrupt, *, keeps: bool
    ) -> None:
        """Hold no results yet; ``keeps``: records of an aborted batch are not called again."""
        self._calls = calls
        self._around = around
        self._interrupt = interrupt
        self._keeps = keeps
        self._kept: dict[Coordinates, Result] = {}

    def preset(
        self, batch: Batch, found: Identified, claimed: Claimed, rejected: Rejected
    ) -> Preset:
        """Return what is known before the calls."""
        known: Preset = {}
        for each in self._around:
            known |= each.before(batch.records)
        if self._kept:
            known |= self._called_before(batch)
        why = {index: str(poison) for index, poison in found.poison.items()} | batch.unreadable
        known |= {index: Failure("Poison", reason, 1) for index, reason in why.items()}
        known |= _rejected(batch, rejected)
        return known | dict.fromkeys(claimed.duplicates)

    def of(
        self, batch: Batch, begun: Begun, claimed: Claimed, rejected: Rejected
    ) -> list[Result | None]:
        """Return results by index, for all records or for a prefix: make the calls that are left.

        Raises SchemasUnavailableError and StopError.
        """
        if begun.results is not None:  # a window has made the calls, and keeps what comes again
            for index, why in _rejected(batch, rejected).items():
                if begun.results[index] is not None:  # or it was found to be a duplicate since
                    begun.results[index] = why
            return self._after(batch, begun.results, ())
        batch.name(begun.found.ids)
        preset = self.preset(batch, begun.found, claimed, rejected)
        results = self._calls.apply_all(batch, self._interrupt, preset)
        done: list[Result | None] = []
        try:
            done = self._after(batch, results, preset)
        finally:
            if len(done) < len(results):
                self.keep(batch, results)
        return done

    def _after(
        self, batch: Batch, results: list[Result | None], preset: Collection[int]
    ) -> list[Result | None]:
        for each in self._around:
            results = each.after(batch.records, results, preset)
        return results

    def keep(self, batch: Batch, results: Results) -> None:
        """Keep answers for a repetition."""
        if self._keeps:
            self._kept = {
                batch.coordinates(index): result
                for index, result in batch.answers(results)
                if result is not None and not isinstance(result, Undecided)
            }

    def _called_before(self, batch: Batch) -> Preset:
        kept, self._kept = self._kept, {}
        places = [batch.coordinates(index) for index in range(len(batch.records))]
        return {index: kept[place] for index, place in enumerate(places) if place in kept}


def _rejected(batch: Batch, rejected: Rejected) -> Preset:
    records = enumerate(batch.records if rejected else ())  # else none of them is made in Python
    return {at: rejected[one.coordinates] for at, one in records if one.coordinates in rejected}
