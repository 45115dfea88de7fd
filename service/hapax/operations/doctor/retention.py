"""Checks of what retention deletes, read or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.operations.doctor.check import (
    DAY_MS,
    check,
    fail,
    kept_ms,
    number,
    ok,
    set_topic,
    unknown,
    warn,
)
from hapax.settings.value_types import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.core.cluster_state import Topic
    from hapax.operations.doctor.check import Case, CheckResult

DEAD_LETTERS_KEPT_MIN_MS = 7 * DAY_MS
"""Long enough to see them and to fix their cause: a week."""


def half(kept: int) -> int:
    """Return the age from which on retention is near."""
    return kept // 2


def most(kept: int) -> int:
    """Return the age from which on records may go any moment: segments go as a whole."""
    return kept * 9 // 10


@check(
    "retention",
    "the age of the next unread record against `retention.ms`",
    "FAIL: nine tenths of it. WARN: half of it.",
    now=True,
    at="input",
)
def _retention(case: Case) -> Iterator[CheckResult]:
    for name, topic in case.inputs.items():
        kept = kept_ms(topic)
        if "retention.ms" not in topic.settings:
            yield unknown(f"{name}: the brokers do not report its retention")
            continue
        if kept is None:
            yield ok(f"{name}: no record is deleted for its age")
            continue
        late, soon = _unread(case, name, most(kept)), _unread(case, name, half(kept))
        fix = f"{set_topic(name, 'retention.ms=…')} to a longer time, and add processes"
        ground = f"retention.ms={kept} ({duration_text(kept)})"
        if late:
            yield fail(
                f"{', '.join(late)}: unread records are older than nine tenths of {ground}: they "
                "are about to be deleted",
                fix,
            )
        elif soon:
            yield warn(f"{', '.join(soon)}: unread records are older than half of {ground}", fix)
        elif why := case.unseen(name):
            yield unknown(why)
        else:
            yield ok(f"{name}: unread records are far younger than {ground}")


@check("retention-bytes", "`retention.bytes` of the input", "WARN: set.", at="input")
def _bytes(case: Case) -> Iterator[CheckResult]:
    for name, topic in case.inputs.items():
        most_bytes = number(topic.settings.get("retention.bytes"))
        if most_bytes is None:
            yield unknown(f"{name}: the brokers do not report its retention")
        elif most_bytes >= 0:
            yield warn(
                f"{name}: retention.bytes={most_bytes}: a burst deletes unread records, however "
                "young",
                set_topic(name, "retention.bytes=-1"),
            )
        else:
            yield ok(f"{name}: no record is deleted for the size of its log")


@check(
    "claim-ttl",
    "`HAPAX_DEDUP__TTL` against the retention of the input, and against unread records",
    "FAIL: unread records are older. WARN: shorter than the retention.",
    at="input",
)
def _claims(case: Case) -> Iterator[CheckResult]:
    if not case.settings.dedup.enabled:
        yield ok("no claim store")
        return
    ttl = case.settings.dedup.ttl_ms
    ours = f"HAPAX_DEDUP__TTL={duration_text(ttl)}"
    for name, topic in case.inputs.items():
        late = _unread(case, name, ttl)
        if late:
            yield fail(
                f"{', '.join(late)}: unread records are older than {ours}: the claim of an event's "
                "first copy may be gone before its second one is read",
                "raise HAPAX_DEDUP__TTL above the longest wait of a record, and add processes",
            )
        elif "retention.ms" not in topic.settings:
            yield unknown(f"{name}: the brokers do not report its retention")
        elif (kept := kept_ms(topic)) is None or kept > ttl:
            yield warn(
                f"{name}: records are kept for {_kept(topic)}, {ours} ends before: a copy that "
                "waits longer than that passes as new",
                "raise HAPAX_DEDUP__TTL above the topic's retention, or lower that",
            )
        else:
            yield ok(f"{name}: {ours} outlives its records")


@check(
    "dead-letter-retention",
    "how long dead letters are kept",
    "WARN: less than a week.",
    at="outputs",
)
def _dead_letters(case: Case) -> Iterator[CheckResult]:
    name = case.settings.dead_letter.topic
    if name is None:
        yield ok("HAPAX_DEAD_LETTER__TOPIC is unset: poison stops the service")
        return
    topic = case.outputs.get(name)
    if topic is None or "retention.ms" not in topic.settings:
        yield unknown(f"{name}: the brokers do not report its retention")
        return
    kept = kept_ms(topic)
    if kept is not None and kept < DEAD_LETTERS_KEPT_MIN_MS:
        yield warn(
            f"{name}: retention.ms={kept}: dead letters are deleted after {duration_text(kept)}, "
            "read or not",
            set_topic(name, f"retention.ms={4 * DEAD_LETTERS_KEPT_MIN_MS}"),
        )
    else:
        yield ok(f"{name}: dead letters are kept for {_kept(topic)}")


def _unread(case: Case, topic: str, age_ms: int) -> list[str]:
    """Return the partitions whose next unread record is older than that."""
    return [
        place
        for place, log in case.logs(topic)
        if log.unread and log.since.get(age_ms, 0) > (0 if log.committed is None else log.committed)
    ]


def _kept(topic: Topic) -> str:
    kept = kept_ms(topic)
    return "ever" if kept is None else duration_text(kept)
