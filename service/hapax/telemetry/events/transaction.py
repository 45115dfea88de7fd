"""Events of batches, transactions and their producers.

``transaction_committed`` is the canonical line, with all numbers: of each transaction at ``debug``,
at ``info`` of those of a second together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from hapax.processing.call_window import BLOCKING
from hapax.telemetry.events.service import Merged, Narrator, add, by_name, named, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hapax.core.records import Coordinates, Progress, Record, TopicPartition
    from hapax.processing.batch_result import BatchResult
    from hapax.processing.deduplicate import IdFindings

MISSING: Final = "HAPAX_DEDUP__ID finds no id in most records: their duplicates pass"
SHARED: Final = (
    "records of one id with different keys: HAPAX_DEDUP__ID names no event, and all but the first"
    " record of an id are dropped; add a part, like +key"
)
LINES_PER_MINUTE: Final = 10
"""Failing records logged in full per minute; a poisoned topic must not drown its own cause."""
SEVERAL_TOPICS: Final = "several"
_AS_THEY_ARE: Final = (
    "outcome", "attempt", "records", "outputs", "duplicates", "filtered", "looped", "retried",
    "moved", "dead_letters", "dead_letter_reasons", "without_id", "unchecked", "claims_new_or_own",
    "bytes_in"
)  # fmt: skip
"""Numbers of a batch that its line has under the same names."""


class TransactionEvents(Narrator):
    """What happens to batches, their producers and the claim store."""

    def transaction_committed(self, settled: BatchResult) -> None:
        """Say what a batch came to, in the canonical line: at ``info`` at most once a second."""
        now_s = self._wall_s()
        self._health.succeed()
        self._health.settle(now_s, settled)
        self._count(settled)
        self._measure(settled, now_s)
        self._claims_settled(settled)
        if self._tells_debug:
            self._logger.debug("transaction_committed", **_line(settled, now_s), **_trace(settled))
        elif self._tells_info:
            line = _line(settled, now_s)
            self._settled = merged(self._settled, line) if self._settled else line
            self._settled |= _trace(settled)
            if self._monotonic_s() >= self._settled_due_s:
                self._tell_settled()

    def claims_unavailable(self, reason: str, policy: Literal["pause", "pass"]) -> None:
        """Say that one call did not answer. Under ``pass`` the service stays ready."""
        self._health.claims_ok = policy == "pass"
        away = self._health.claims_away
        begins = away is None
        self._health.claims_away = self._outage(away, reason)
        self._metrics.dedup_store_up.of().set(0)
        self._metrics.dedup_lookups.of("error").inc()
        if self._first("claims_unavailable", policy) or begins:
            self._logger.error("claims_unavailable", reason=printable(reason), policy=policy)

    def claims_recovered(self, outage_s: float) -> None:
        self._health.claims_ok = True
        self._health.claims_away = None
        self._metrics.dedup_store_up.of().set(1)
        self._logger.info("claims_recovered", outage_s=round(outage_s, 3))

    def claims_lost(self) -> None:
        self._metrics.dedup_claim_losses.of().inc()
        self._logger.error("claims_lost")

    def claims_evicted(self, problem: str, evicted: int) -> None:
        """Take note of why it may delete claims (empty: it does not), and of keys evicted since."""
        begins = bool(problem) and not self._health.claims_evicted
        self._health.claims_evicted = bool(problem)
        self._metrics.dedup_store_evicts.of().set(bool(problem))
        if evicted:
            self._metrics.dedup_keys_evicted.of().inc(evicted)
        if begins or (evicted and self._first("claims_evicted")):
            self._logger.error("claims_evicted", reason=printable(problem), keys=evicted)

    def claims_volatile(self, reason: str) -> None:
        # Why a restart of it forgets claims; the start names what is so before the first look.
        before, self._health.claims_volatile = self._health.claims_volatile, reason
        self._metrics.dedup_store_volatile.of().set(bool(reason))
        if reason and before not in {None, reason}:
            self._logger.error("claims_volatile", reason=printable(reason))

    def claims_clock_jumped(self, seconds: float) -> None:
        self._metrics.dedup_clock_jumps.of().inc()
        self._logger.error("claims_clock_jumped", seconds=round(seconds, 3))

    def outputs_lost(self, messages: int, reason: str) -> None:
        """Say that up to so many outputs of a batch are lost, as at most once allows."""
        self._logger.error("outputs_lost", messages=messages, reason=printable(reason))

    def dead_letter_written(
        self, coordinates: Coordinates, reason: str, attempts: int, error: str = ""
    ) -> None:
        """Say which record became a dead letter. ``transaction_committed`` counts it."""
        if self._first("dead_letter_written", lines=LINES_PER_MINUTE):
            where, told = str(coordinates), printable(error)
            self._logger.warning(
                "dead_letter_written", record=where, reason=reason, attempts=attempts, error=told
            )

    def records_wait(self, count: int) -> None:
        """Take note of how many records wait for a later try. Any thread may call."""
        self._metrics.records_waiting.of().set(count)

    def records_left_waiting(self, records: int, unread: int, topic: str) -> None:
        """Say how many records wait as a bounded run ends; another run takes them when due.

        ``unread``: offsets of the retry topic that were not read back yet, markers among them.
        """
        self._logger.info("records_left_waiting", records=records, unread=unread, topic=topic)

    def records_isolated(
        self, partition: TopicPartition, first: int, until: int, deaths: int
    ) -> None:
        self._metrics.partitions_isolated.of().inc()
        self._logger.warning(
            "records_isolated", partition=named(partition), first=first, until=until, deaths=deaths
        )

    def crashing_record_found(self, coordinates: Coordinates, how: str, deaths: int) -> None:
        self._metrics.crashing_records.of().inc()
        self._logger.error(
            "crashing_record_found", record=str(coordinates), how=printable(how), deaths=deaths
        )

    def isolation_failed(self, reason: str) -> None:
        self._logger.error("isolation_failed", reason=printable(reason))

    def event_loop_blocked(self, record: Record | None) -> None:
        where = None if record is None else str(record.coordinates)
        self._logger.warning("event_loop_blocked", record=where, hint=BLOCKING)

    def calls_observed(self, running: Sequence[tuple[Record, float]]) -> None:
        """Take note of the records in a call of the transform, and of the seconds it has taken."""
        self._health.calls = running
        self._metrics.calls_in_flight.of().set(len(running))
        self._metrics.call_oldest_seconds.of().set(max((s for _, s in running), default=0.0))

    def batch_aborted(self, reason: str, records: int, attempt: int, rewound_to: Progress) -> None:
        self._metrics.transactions.of("aborted").inc()
        self._health.fail()
        told, at = printable(reason), by_name(rewound_to)
        self._logger.warning(
            "batch_aborted", reason=told, records=records, attempt=attempt, rewound_to=at
        )

    def batch_halved(self, records_max: int, reason: str) -> None:
        self._metrics.batches_halved.of().inc()
        self._logger.warning("batch_halved", records_max=records_max, reason=printable(reason))

    def producer_died(self, reason: str, *, fenced: bool) -> None:
        self._metrics.transactions.of("fenced" if fenced else "fatal").inc()
        self._health.fail()
        self._logger.error("producer_died", reason=printable(reason), fenced=fenced)

    def member_fenced(self, reason: str, *, explained: bool) -> None:
        """Say that the group gave this name away; explained: connections broke shortly before."""
        self._metrics.members_fenced.of().inc()
        self._logger.error("member_fenced", reason=printable(reason), explained=explained)

    def producer_rebuilt(self, cause: str, duration_s: float) -> None:
        """Say that a new producer is initialised. ``cause``: one word, it is a label."""
        self._metrics.producers_rebuilt.of(cause).inc()
        self._logger.warning("producer_rebuilt", cause=cause, duration_ms=_ms(duration_s))

    def in_doubt_fenced(self, evidence: str) -> None:
        self._metrics.in_doubt_fences.of().inc()
        self._logger.warning("in_doubt_fenced", evidence=printable(evidence))

    def _ids_told(self, ids: IdFindings) -> None:
        if ids.missing and self._first("ids_missing"):
            self._logger.warning("ids_missing", records=ids.missing, of=ids.looked, hint=MISSING)
        if ids.shared is not None:
            self._metrics.dedup_ids_on_different_keys.of().inc()
            one, other = map(str, ids.shared)
            if self._first("id_on_different_keys"):
                self._logger.warning("id_on_different_keys", record=one, other=other, hint=SHARED)

    def _claims_settled(self, settled: BatchResult) -> None:
        """Conclude that the store went or came: under ``pass`` no other part notices."""
        if settled.claims_taken_over:
            self._metrics.dedup_claims_taken_over.of().inc(settled.claims_taken_over)
            self._logger.warning("claims_taken_over", claims=settled.claims_taken_over)
        if settled.ids is not None:
            self._ids_told(settled.ids)
        away = self._health.claims_away
        if settled.unchecked:
            self.claims_unavailable("a batch was processed without claims", "pass")
        elif away is not None and settled.claims_new_or_own + settled.duplicates:
            self.claims_recovered(self._monotonic_s() - away.began_s)

    def _count(self, settled: BatchResult) -> None:
        metrics = self._metrics
        metrics.transactions.of(settled.outcome).inc()
        add(metrics.records_consumed, _inputs(settled))
        add(metrics.records_produced, settled.outputs)
        add(metrics.records_dead_lettered, settled.dead_letter_reasons)
        metrics.records_skipped.of("duplicate").inc(settled.duplicates)
        metrics.records_skipped.of("filtered").inc(settled.filtered)
        metrics.records_skipped.of("looped").inc(settled.looped)
        metrics.records_retried.of("asked").inc(settled.retried)
        metrics.records_retried.of("moved").inc(settled.moved)
        metrics.records_without_id.of().inc(settled.without_id)
        metrics.records_unchecked.of().inc(settled.unchecked)
        metrics.dedup_lookups.of("miss_or_own").inc(settled.claims_new_or_own)
        metrics.dedup_lookups.of("hit").inc(settled.duplicates)
        metrics.bytes_consumed.of().inc(settled.bytes_in)

    def _measure(self, settled: BatchResult, now_s: float) -> None:
        metrics, phases_s = self._metrics, settled.phases_s
        for phase, seconds in phases_s.items():
            metrics.transaction_duration_seconds.of(phase).observe(seconds)
        metrics.transaction_duration_seconds.of("total").observe(sum(phases_s.values()))
        metrics.transaction_records.of().observe(settled.records)
        if settled.claims_new_or_own or settled.duplicates:
            metrics.dedup_latency_seconds.of().observe(phases_s.get("claim", 0.0))
        if settled.newest_timestamp_ms > 0:
            latency = metrics.record_latency_seconds.of()
            latency.observe(_age_s(settled.newest_timestamp_ms, now_s))
            if settled.records > 1 and settled.oldest_timestamp_ms > 0:
                latency.observe(_age_s(settled.oldest_timestamp_ms, now_s))
        metrics.last_commit_timestamp_seconds.of().set(now_s)


def merged(before: Merged, line: Merged) -> Merged:
    """Return the line of transactions that follow each other; texts are those of the last one."""
    return {name: _MERGE.get(name, _sum)(before[name], value) for name, value in line.items()}


def _sum(before: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return before | {name: _sum(before.get(name, 0), each) for name, each in value.items()}
    if isinstance(value, float):
        return round(before + value, 3)
    return value if isinstance(value, str) else before + value


def _spans(before: Merged, spans: Merged) -> Merged:
    firsts = {where: span[0] for where, span in {**spans, **before}.items()}
    return before | {where: [firsts[where], span[1]] for where, span in spans.items()}


def _ages(before: Merged, ages: Merged) -> Merged:
    known = [ms for ms in (before["oldest"], ages["oldest"]) if ms is not None]
    newest = before["newest"] if ages["newest"] is None else ages["newest"]
    return {"oldest": max(known, default=None), "newest": newest}


_MERGE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "attempt": max,
    "offsets": _spans,
    "latency_ms": _ages,
}


def _line(settled: BatchResult, now_s: float) -> Merged:
    return {
        "transactions": 1,
        **{name: getattr(settled, name) for name in _AS_THEY_ARE},
        "offsets": {named(where): list(span) for where, span in settled.offsets.items()},
        "latency_ms": {
            "oldest": _latency_ms(settled.oldest_timestamp_ms, now_s),
            "newest": _latency_ms(settled.newest_timestamp_ms, now_s),
        },
        "phases_ms": {phase: _ms(seconds) for phase, seconds in settled.phases_s.items()},
        "duration_ms": _ms(sum(settled.phases_s.values())),
    }


def _trace(settled: BatchResult) -> dict[str, str]:
    return dict(zip(("trace_id", "span_id"), settled.trace or (), strict=False))


def _inputs(settled: BatchResult) -> dict[str, int]:
    if settled.inputs:
        return settled.inputs
    topics = {topic for topic, _ in settled.offsets}
    return {topics.pop() if len(topics) == 1 else SEVERAL_TOPICS: settled.records}


def _age_s(timestamp_ms: int, now_s: float) -> float:
    """Return seconds since ``timestamp_ms``; a producer's clock may run ahead of this one."""
    return max(0.0, now_s - timestamp_ms / 1000)


def _latency_ms(timestamp_ms: int, now_s: float) -> float | None:
    return _ms(_age_s(timestamp_ms, now_s)) if timestamp_ms > 0 else None


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
