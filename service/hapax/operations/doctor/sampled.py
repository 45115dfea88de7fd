"""Checks of the last records of the inputs: where their keys lie, and their timestamps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.core.topic_rules import UNLIMITED, TopicRules
from hapax.operations.doctor.check import (
    DAY_MS,
    HOUR_MS,
    check,
    fail,
    kept_ms,
    number,
    ok,
    set_topic,
    unknown,
    warn,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hapax.core.cluster_state import LastRecords
    from hapax.operations.doctor.check import Case, CheckResult, Judge

JAVA: Final = "murmur2"
WHOSE: Final = {
    "crc32": "CRC32 (consistent_random, librdkafka's and so confluent-kafka's default)",
    "fnv1a": "FNV-1a (the default of Sarama, Hash of kafka-go)",
}
SURE, DEVIATIONS = 1_000, 4
"""What chance gives in fewer than one of 1,000 cases, or so far above the average, is no chance."""
AFTER, AHEAD_MAX_MS = "message.timestamp.after.max.ms", HOUR_MS
"""What brokers from 4.0 take unless they are set otherwise."""


def _of_each(judge: Callable[[Case, str, LastRecords], Iterator[CheckResult]]) -> Judge:
    def judged(case: Case) -> Iterator[CheckResult]:
        why = case.kafka.untold.get("samples", "its offsets are not known")
        for name in case.inputs:
            sample = case.kafka.samples.get(name)
            told = unknown(f"last records of {name}: {why}")
            yield from [told] if sample is None else judge(case, name, sample)

    return judged


@check(
    "keys",
    "the last records of each input partition: whether their keys lie where Java puts them",
    "WARN: producers with different partitioners, or one key in two partitions.",
    at="input",
)
@_of_each
def _keys(case: Case, name: str, sample: LastRecords) -> Iterator[CheckResult]:
    places, chosen = sample.placed_by(), case.settings.output.partitioner
    saw, rest = f"{name}: {places} sampled keys", places - sample.placed_by(JAVA)
    others = (one for one in WHOSE if sample.placed_by(one) - sample.placed_by(one, JAVA) == rest)
    other = next(others, "") if sample.partitions**rest >= SURE else ""
    share = 1 / sample.partitions
    spread = (places * share * (1 - share)) ** 0.5
    some = sample.placed_by(JAVA) > places * share + DEVIATIONS * spread
    if not rest:
        yield ok(f"{saw} lie where Java's partitioner puts them")
    elif other and sample.placed_by(other) == places:
        same = (chosen, other) == ("consistent_random", "crc32")
        so = "as well" if same else "elsewhere: the two do not join by key"
        yield ok(f"{saw} lie where {WHOSE[other]} puts them; {chosen} puts those of outputs {so}")
    elif sample.torn or other or some:
        torn = f", {sample.torn} are seen in two partitions" if sample.torn else ""
        yield warn(
            f"{saw}{torn}: {rest} lie where Java's partitioner would not put them: a producer uses "
            f"{WHOSE.get(other, 'another one')}, and records of one key may lie in two partitions, "
            "where joins miss them and their order is lost",
            "set Java's on that producer: partitioner=murmur2_random in librdkafka, the one named "
            "Murmur2 in Sarama and kafka-go; keys from before partitions were added look the same",
        )
    else:
        yield ok(f"{saw}: no partitioner that is known here puts them where they lie")


@check(
    "timestamps",
    "the timestamps of the last records of each input partition",
    "WARN: some lie in the future, were older than `retention.ms` when written, or are missing.",
    at="input",
)
@_of_each
def _timestamps(case: Case, name: str, sample: LastRecords) -> Iterator[CheckResult]:
    stamps, topic = sample.timestamps_ms, case.kafka.topics[name]
    saw = f"{name}: of {len(stamps)} sampled records"
    cure = "correct clock and unit (milliseconds) of their producer, or let brokers"
    stamped = f"{cure} set the time: {set_topic(name, 'message.timestamp.type=LogAppendTime')}"
    ahead = [one for one in stamps if one - sample.seen_ms > AHEAD_MAX_MS]
    none = sum(one < 0 for one in stamps)
    kept, segment = kept_ms(topic), number(topic.settings.get("segment.ms"))
    age = sample.seen_ms - next((one for one in stamps if one >= 0), sample.seen_ms)
    # A record that is so much older than one before it was as old when it was written; and so was
    # one that retention and the longest time of a segment together should have deleted.
    old = kept is not None and (sample.behind_ms > kept or age > kept + (segment or UNLIMITED))
    if ahead:
        yield warn(
            f"{saw} {len(ahead)} have timestamps in the future, by up to "
            f"{(ahead[-1] - sample.seen_ms) / DAY_MS:.1f} days: their segments are kept until then",
            f"{cure} refuse them: {set_topic(name, f'{AFTER}={AHEAD_MAX_MS}')}",
        )
    if none:
        yield warn(
            f"{saw} {none} have no timestamp, or one before 1970: a start at a time passes over "
            "them, and windows take them as late",
            stamped,
        )
    if old:
        yield warn(
            f"{saw} some, up to {age / DAY_MS:.1f} days old, were older than retention.ms={kept} "
            "when they were written: a segment of them is deleted within minutes, read or not",
            stamped,
        )
    if not (ahead or none or old):
        yield ok(f"{saw} all have timestamps in its range")


@check(
    "output-timestamps",
    "`message.timestamp.type`, `message.timestamp.before.max.ms` and `…after.max.ms` of the output "
    "against timestamps and retention of the input",
    "FAIL: the output refuses some, and there is no dead-letter topic. WARN: it refuses some, or "
    "would refuse old ones.",
    at="outputs",
)
def _output(case: Case) -> Iterator[CheckResult]:
    name, letters = case.settings.output.topic, case.settings.dead_letter.topic
    settings = case.outputs[name].settings if name in case.outputs else {}
    cure = "HAPAX_OUTPUT__TIMESTAMP=now, or raise the limit"
    rules = TopicRules() if case.settings.output.timestamp == "now" else TopicRules.of(settings)
    refused = [
        why
        for sample in (case.source or case).kafka.samples.values()
        for one in sample.timestamps_ms
        if (why := rules.refusal(name, b"", one, sample.seen_ms))
    ]
    kept = [UNLIMITED if one is None else one for one in map(kept_ms, case.read.values())]
    if refused:
        yield (warn if letters else fail)(
            f"{len(refused)} sampled records of the input have {refused[0].partition(': ')[0]}: "
            f"their outputs {'become dead letters' if letters else 'stop the service'}",
            cure,
        )
    elif max(kept, default=0) > rules.before_ms:
        yield warn(
            f"{name}: message.timestamp.before.max.ms={rules.before_ms}, and the input keeps "
            "records for longer: after an outage or in a backfill their outputs are refused",
            cure,
        )
    else:
        yield (ok if settings else unknown)(f"{name}: refuses no timestamp as far as is known")
