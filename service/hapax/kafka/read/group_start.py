"""What is to be known of where a group begins, before it is joined.

Brokers forget the offsets of a group some days after its last member has left
(``offsets.retention.minutes``), and the group then looks like a new one: what it has done stands in
its outputs. Clients other than Hapax leave no offset in partitions where they have read nothing.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Protocol

from hapax.core.committed_metadata import CommittedMetadata
from hapax.core.errors import BatchAbortedError, PositionLostError, PreflightError
from hapax.core.group_start import (
    by_start,
    expired,
    new_with_each_start,
    partly_begun,
    taken_over,
    topics_of,
)
from hapax.core.span import SpanWords
from hapax.kafka.read.offset_client import OffsetClient, reader_properties
from hapax.kafka.read.spans import spans
from hapax.kafka.read.worked import others, worked

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from confluent_kafka import TopicPartition

    from hapax.core.partition_offsets import LogOffsets
    from hapax.core.records import Progress
    from hapax.core.records import TopicPartition as Where
    from hapax.settings import Settings


class Told(Protocol):
    """Returns the offsets that count, as the client does; raises BatchAbortedError: ask again."""

    def __call__(self, partitions: Iterable[Where] | None = None) -> Mapping[Where, TopicPartition]:
        """Of some partitions; None: what the group has in all that it reads."""


def start_remarks(settings: Settings, told: Told) -> list[str]:
    """Return it in sentences, where it is not what HAPAX_INPUT__START says of a new group.

    Raises PositionLostError where it has no offset in a topic at which this pipeline has worked.
    """
    try:
        known = told()
    except BatchAbortedError:  # a transaction holds some: what was committed before it counts
        try:
            with closing(OffsetClient(settings)) as client:
                known = client.answers(client.partitions(settings.input.topics), stable=False)
        except PreflightError:  # a right that is missing is named by the broker that is joined
            return []
    static = settings.group.membership == "static"
    remarks = list(filter(None, [new_with_each_start(settings.instance) if static else ""]))
    fresh: list[Where] = []
    for topic in settings.input.topics:
        of_topic = {where: one for where, one in known.items() if where[0] == topic}
        missing = [where for where, one in of_topic.items() if one.offset < 0]
        beside = {
            number: CommittedMetadata.of(one)
            for (_topic, number), one in of_topic.items()
            if one.offset >= 0
        }
        remarks += filter(None, [taken_over(topic, beside.values())])
        if not beside:
            fresh += missing
        elif missing:
            remarks.append(partly_begun(missing, beside, settings.input.start))
    return remarks + _judged(settings, fresh, told)


def judges(settings: Settings) -> bool:
    """Whether lost offsets are told from a new group.

    Not where START=refuse stops anyway, not for a span that ends, which is begun on purpose, and
    not where outputs may stand without their offsets.
    """
    given, weaker = settings.input, settings.guarantee == "at_least_once"
    return given.start != "refuse" and given.end is None and not weaker


def _begun(told: Told, places: Iterable[Where]) -> bool:
    """Whether another member has begun meanwhile, or is about to: its outputs were seen first."""
    try:
        known = told(places)
    except BatchAbortedError:
        return True
    return any(one.offset >= 0 for one in known.values())


def _judged(settings: Settings, fresh: Sequence[Where], told: Told) -> list[str]:
    """Return remarks about topics without any offset; raise as ``start_remarks``."""
    if not judges(settings) or not fresh:
        return []
    try:
        found = worked(settings, fresh)
    except PreflightError as error:
        remark = (
            f"{', '.join(topics_of(fresh))}: the group has no offset, and whether this pipeline has"
            f" worked there is not known ({error}): grant READ on its outputs"
        )
        return [remark]
    if found.as_start or _begun(told, found.proposed):
        return []
    output = settings.output.topic
    groups = [] if found.ours else others(settings, found.reached)
    if not groups:
        raise PositionLostError(expired(settings.app, output, found.proposed))
    remark = (
        f"{', '.join(topics_of(found.proposed))}: {output} already holds what was made of these"
        f" records, by another pipeline ({', '.join(groups)}); this one begins at"
        f" HAPAX_INPUT__START={settings.input.start}. If HAPAX_APP was renamed, stop it and take"
        f" the offsets over: hapax offsets adopt {groups[0]}"
    )
    return [remark]


def positions(
    settings: Settings,
    answers: Mapping[Where, TopicPartition],
    logs: Mapping[Where, LogOffsets],
) -> dict[Where, int | None]:
    """Return where a process would go on in each partition; None: it would refuse to start.

    ``answers``: the group's offsets, of all partitions of their topics. Raises as ``spans``.
    """
    found: dict[Where, int | None] = {
        w: one.offset for w, one in answers.items() if one.offset >= 0
    }
    missing = [where for where in answers if where not in found]
    beside = {
        topic: [CommittedMetadata.of(answers[where]) for where in found if where[0] == topic]
        for topic in topics_of(missing)
    }
    fresh = [
        where for where in missing if not beside[where[0]] and where[0] != settings.retry_topic
    ]
    lost = _lost(settings, fresh)
    placed = [w for w in missing if w[0] != settings.retry_topic and by_start(w[1], beside[w[0]])]
    start = settings.start
    if isinstance(start, SpanWords) and placed:
        known = spans(reader_properties(settings), placed, start)
        found |= {where: span.start for where, span in known.items()}
    for where in missing:
        log = logs[where]
        words = {"earliest": log.log_start, "latest": log.last_stable, "refuse": None}
        word = start if where in placed and isinstance(start, str) else "earliest"
        found[where] = None if where in lost else found.get(where, words[word])
    return found


def _lost(settings: Settings, fresh: Sequence[Where]) -> Progress:
    """Return what a start would propose instead of beginning; nothing where it cannot tell."""
    if not judges(settings) or not fresh:
        return {}
    try:
        found = worked(settings, fresh)
    except PreflightError:
        return {}
    if found.as_start or (not found.ours and others(settings, found.reached)):
        return {}
    return found.proposed
