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
    if count < LEVELS:
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
    yield from _kept(name, kept_ms(topic))


def _kept(name: str, kept: int | None) -> Iterator[CheckResult]:
    longest = duration_text(LONGEST_MS)
    fix = set_topic(name, f"retention.ms={max(7 * DAY_MS, 2 * LONGEST_MS)}")
    if kept is not None and kept <= LONGEST_MS:
        yield fail(
            f"{name}: retention.ms={kept}: records are deleted after {duration_text(kept)}, and "
            f"may wait for {longest}",
            fix,
        )
    elif kept is not None and kept < LONGEST_MS + SPARE_MS:
        yield warn(
            f"{name}: retention.ms={kept}: what waits for {longest} is soon deleted while the "
            "service is stopped",
            fix,
        )
    else:
        yield ok(f"{name}: records outlive the longest delay, {longest}")
