"""BatchResult: what one batch came to. Made by step 7, logged and counted by telemetry."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Protocol, Self

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.core.offset_commit import Marks
    from hapax.core.ports import Clock
    from hapax.core.record_path import Batch, Facts, Identified, Plan
    from hapax.core.records import Coordinates, Progress, TopicPartition
    from hapax.core.results import Failure, Result
    from hapax.processing.deduplicate import Asking, Claimed, IdFindings

Span = tuple[int, int]
"""The first offset taken, and the next offset to read."""
EXAMPLES_MAX = 10
"""Dead letters of one batch that are logged one by one; the rest is counted."""


class PhaseTimer:
    """Measures the steps of one batch: seconds by step in ``phases_s``.

    ``begun``: what was done for it earlier, while the batch before it had the thread.
    """

    def __init__(self, clock: Clock, begun: Mapping[str, float] | None = None) -> None:
        self.phases_s: dict[str, float] = dict(begun or {})
        self._monotonic = clock.monotonic
        self._last_s = clock.monotonic()

    def end(self, step: str) -> None:
        """Note that this step ends here, and the next one begins."""
        now_s = self._monotonic()
        self.phases_s[step] = self.phases_s.get(step, 0.0) + now_s - self._last_s
        self._last_s = now_s


def _times(batch: Batch, facts: Facts, apart: str | None) -> tuple[int, int]:
    """Return the oldest and the newest timestamp, without those of the topic ``apart``."""
    if apart is None:
        return facts.oldest_timestamp_ms, facts.newest_timestamp_ms
    done = batch.records[: facts.records]
    times_ms = [record.timestamp_ms for record in done if record.topic != apart]
    return min(times_ms, default=0), max(times_ms, default=0)


class BatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """One batch whose transaction has ended, in numbers. It keeps no record alive.

    outcome              how the transaction ended: ``committed``
    attempt              1 for a batch that went through at once
    offsets              per partition the span of the progress that was committed
    records              records taken
    inputs               the same by input topic; may stay empty when there is one input topic
    outputs              records written, by topic, dead letters included
    duplicates           records whose id belongs to other coordinates
    filtered             records for which the transform had no output
    looped               records that have been on the cluster of the outputs (plan.py)
    retried              records that asked for a later try and wait in the retry topic
    moved                records that were not due yet and wait on in another level of it
    dead_letters         records that became dead letters
    dead_letter_reasons  the same by the name of the exception's type
    dead_letter_examples the first few of them, with what became of their last attempt
    without_id           records processed although no source of ids found one
    unchecked            records processed without claims (outage policy ``pass``)
    claims_new_or_own    ids claimed by their own records, new or seen before
    claims_taken_over    ids among them that belonged to records that are gone (deduplicate.py)
    ids                  what is wrong with the ids of this batch; None: nothing
    bytes_in             of keys, values and headers of the input
    phases_s             seconds of this thread by step: identify, claim, transform, plan, send,
                         send_offsets, commit; a step that did not happen may be left out. The way
                         of a claim that travels while another batch is in work is not in ``claim``
    oldest_timestamp_ms, newest_timestamp_ms  of the records, Unix time; 0 when there is none
    trace                ids of the trace and the span, in hexadecimal; None without tracing
    """

    outcome: str = "committed"
    attempt: int = 1
    offsets: dict[TopicPartition, Span]
    records: int
    inputs: dict[str, int] = {}
    outputs: dict[str, int] = {}
    duplicates: int = 0
    filtered: int = 0
    looped: int = 0
    retried: int = 0
    moved: int = 0
    dead_letters: int = 0
    dead_letter_reasons: dict[str, int] = {}
    dead_letter_examples: list[tuple[Coordinates, Failure]] = []
    without_id: int = 0
    unchecked: int = 0
    claims_new_or_own: int = 0
    claims_taken_over: int = 0
    ids: IdFindings | None = None
    bytes_in: int = 0
    phases_s: dict[str, float] = {}
    oldest_timestamp_ms: int = 0
    newest_timestamp_ms: int = 0
    trace: tuple[str, str] | None = None

    @classmethod
    def of(
        cls,
        batch: Batch,
        plan: Plan,
        facts: Facts,
        claimed: Claimed,
        *,
        phases_s: dict[str, float],
        attempt: int,
    ) -> Self:
        """Return the numbers of a committed batch; ``facts``: of the records that are done."""
        done, without_id = facts.records, facts.without_id
        oldest_ms, newest_ms = _times(batch, facts, plan.apart)
        return cls(
            offsets={
                where: (batch.first.get(where, offset), offset)
                for where, offset in plan.progress.items()
            },
            records=done,
            outputs=plan.messages.counts(),
            duplicates=plan.duplicates,
            filtered=plan.filtered,
            looped=plan.looped,
            retried=plan.retried,
            moved=plan.moved,
            dead_letters=len(plan.failures),
            dead_letter_reasons=dict(Counter(one.reason for one in plan.failures.values())),
            dead_letter_examples=[
                (batch.records[index].coordinates, failure)
                for index, failure in islice(plan.failures.items(), EXAMPLES_MAX)
            ],
            inputs=facts.inputs,
            without_id=without_id,
            unchecked=done - without_id if claimed.unchecked else 0,
            claims_new_or_own=done - without_id - plan.duplicates if claimed.checked else 0,
            claims_taken_over=len(claimed.taken_over),
            ids=claimed.ids,
            bytes_in=facts.bytes_in,
            phases_s=phases_s,
            oldest_timestamp_ms=oldest_ms,
            newest_timestamp_ms=newest_ms,
            attempt=attempt,
        )

    @property
    def progress(self) -> Progress:
        return {where: offset for where, (_first, offset) in self.offsets.items()}

    @property
    def working_s(self) -> float:
        """Seconds until the transaction began."""
        return sum(self.phases_s[step] for step in ("identify", "claim", "transform", "plan"))

    @property
    def transaction_s(self) -> float:
        """Seconds from begin to the end of the commit."""
        return sum(self.phases_s[step] for step in ("send", "send_offsets", "commit"))


class Begun(msgspec.Struct, gc=False):
    """What was done for a batch before its turn: its claim is on its way, or more.

    found     the ids
    asking    the claim; None: no record has an id, or nothing is claimed at all
    phases_s  seconds of this thread that it took, by step; the way to the store is not among them
    claimed   what step 3 has found; None: its answer is still to be judged
    preset     by index the results of records that business code does not see, once claimed
    results   of step 4, for every record; None: it is still to come
    """

    found: Identified
    asking: Asking | None
    phases_s: dict[str, float]
    claimed: Claimed | None = None
    preset: dict[int, Result | None] = msgspec.field(default_factory=dict)
    results: list[Result | None] | None = None

    def add(self, event_id: bytes, result: Result | None) -> None:
        assert self.results is not None
        self.found.ids.append(event_id)  # type: ignore[attr-defined] # a list, made for this
        self.results.append(result)

    def drop(self) -> None:
        """Give the answer up; what was claimed names the coordinates of these very records."""
        if self.asking is not None:
            self.asking.asked.drop()


class Core(Protocol):
    """Runs batches; ``ExactlyOnce`` is the one that does the work."""

    def ask(self, batch: Batch) -> Begun:
        """Do what can be done for a batch while the one before it is in work."""

    def admit(self, batch: Batch) -> tuple[Batch, Begun]:
        """Take the steps before the transform, for records that enter a window (call_window.py)."""

    def run(
        self,
        batch: Batch,
        rejected: Mapping[Coordinates, Failure],
        attempt: int,
        begun: Begun | None = None,
    ) -> BatchResult:
        """Give every record of ``batch`` its one effect, or raise and leave none."""

    def end(self, progress: Progress, marks: Marks | None = None) -> None:
        """Commit progress alone, without a record; ``marks`` as in ``offset_commit``."""
