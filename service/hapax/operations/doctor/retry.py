"""Checks of the topic in which records wait for a later try."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.core.retry_levels import LEVELS, LONGEST_MS, create_command
from hapax.operations.doctor.check import DAY_MS, check, fail, kept_ms, ok, set_topic, unknown, warn
from hapax.settings.value_types import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.operations.doctor.check import Case, CheckResult

SPARE_MS: Final = 2 * DAY_MS
"""Beside the longest wait: a weekend without the service."""


@check(
    "retry-topic",
    "partitions, `retention.ms`, `retention.bytes` and `cleanup.policy` of the retry topic, "
    "against the longest delay",
    "FAIL: too few partitions, compacted, or records are deleted before they are due. WARN: soon "
    "after.",
    at="input",
)
def _retry_topic(case: Case) -> Iterator[CheckResult]:
    name = case.settings.retry_topic
    if name is None:
        yield ok("HAPAX_RETRY__TOPIC and HAPAX_RETRY__LATER are unset: no record waits")
        return
    topic = case.outputs.get(name)
    if topic is None:
        yield fail(f"HAPAX_RETRY__TOPIC: topic {name} does not exist", create_command(name))
        return
    count = len(topic.partitions)
    if case.settings.retry_by_key:
        yield from _pairs(case, name, count)
    elif count < LEVELS:
        yield fail(
            f"{name} has {count} partitions, later tries need {LEVELS}: one for each length of "
            "wait",
            create_command(name, existing=True),
        )
    if "retention.ms" not in topic.settings:
        yield unknown(f"{name}: the brokers do not report its retention")
        return
    if "compact" in topic.settings.get("cleanup.policy", "delete"):
        yield fail(
            f"{name}: cleanup.policy={topic.settings['cleanup.policy']}: of records with one key "
            "that wait all but the last are deleted",
            set_topic(name, "cleanup.policy=delete"),
        )
    if topic.settings.get("retention.bytes", "-1") != "-1":
        yield fail(
            f"{name}: retention.bytes={topic.settings['retention.bytes']}: many records that wait "
            "delete each other",
            set_topic(name, "retention.bytes=-1"),
        )
    waits_ms = LONGEST_MS
    if case.settings.retry_by_key:
        # What waits behind others waits for all their tries, and is not written again meanwhile.
        waits_ms = case.settings.retry.later_attempts * case.settings.retry.delay_max_ms
    yield from _kept(name, kept_ms(topic), max(LONGEST_MS, waits_ms))


def _pairs(case: Case, name: str, count: int) -> Iterator[CheckResult]:
    """Yield which topics have another number of partitions: they go to members by number."""
    counts = {one: len(topic.partitions) for one, topic in case.inputs.items()}
    most = max(counts.values(), default=count)
    wrong = [f"{one} {each}" for one, each in {**counts, name: count}.items() if each != most]
    if wrong:
        yield fail(
            f"HAPAX_RETRY__ORDER=key: inputs and retry topic need the same number of partitions, "
            f"{most}; others have: {', '.join(wrong)}",
            create_command(name, most, existing=count < most),
        )


def _kept(name: str, kept: int | None, waits_ms: int) -> Iterator[CheckResult]:
    longest = duration_text(waits_ms)
    fix = set_topic(name, f"retention.ms={max(7 * DAY_MS, 2 * waits_ms)}")
    if kept is not None and kept <= waits_ms:
        yield fail(
            f"{name}: retention.ms={kept}: records are deleted after {duration_text(kept)}, and "
            f"may wait for {longest}",
            fix,
        )
    elif kept is not None and kept < waits_ms + SPARE_MS:
        yield warn(
            f"{name}: retention.ms={kept}: what waits for {longest} is soon deleted while the "
            "service is stopped",
            fix,
        )
    else:
        yield ok(f"{name}: records outlive the longest delay, {longest}")
