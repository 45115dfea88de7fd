"""What is to be known of where a group or a span begins, before it is joined.

Brokers forget the offsets of a group some days after its last member has left
(``offsets.retention.minutes``), and the group then looks like a new one: what it has done is in its
outputs. Clients other than Hapax leave no offset in partitions where they have read nothing.
"""

from __future__ import annotations

import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from hapax.cluster.group_start import (
    by_start,
    expired,
    new_with_each_start,
    partly_begun,
    starts_as_proposed,
    taken_over,
    topics_of,
)
from hapax.core.errors import (
    BatchAbortedError,
    ConfigurationError,
    PositionLostError,
    PreflightError,
)
from hapax.core.headers import APP, SOURCE, coordinates
from hapax.core.offset_commit import CommittedMetadata
from hapax.core.span import Span, SpanWords, offsets_of, time_of
from hapax.kafka.admin.topics import topic_ids
from hapax.kafka.errors import describe, offset_of, place_of
from hapax.kafka.properties import admin_properties, build
from hapax.kafka.read.offsets_client import (
    EARLIEST,
    LATEST,
    BlockingOffsets,
    OffsetsClient,
    reader_properties,
)
from hapax.kafka.read.range_reader import RangeFetch, RangeReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from hapax.cluster.partition_offsets import LogOffsets
    from hapax.core.records import Coordinates, Progress, TopicPartition as Where
    from hapax.settings import Settings

    Told = Callable[[Iterable[Where] | None], Mapping[Where, TopicPartition]]

    """Returns the offsets that count, as the client does, of some partitions or of all that the
    group has in what it reads. Raises BatchAbortedError: ask again."""

TAILS = (20, 200, 2_000)
"""Offsets before the end of each output partition, until all input partitions are found in them."""
WITHIN_S, ANSWER_S = 5.0, 5.0
GROUPS_MAX = 500


def start_remarks(settings: Settings, told: Told) -> list[str]:
    """Return sentences; raise PositionLostError where this pipeline has worked without offsets."""
    try:
        known = told(None)
    except BatchAbortedError:  # a transaction holds some: what was committed before it counts
        try:
            with closing(BlockingOffsets(settings)) as client:
                known = client.answers(client.partitions(settings.input.topics), stable=False)
        except PreflightError:  # a right that is missing is named by the broker that is joined
            return []
    static = settings.group.membership == "static"
    remarks = list(filter(None, [new_with_each_start(settings.instance) if static else ""]))
    fresh: list[Where] = []
    for topic in settings.input.topics:
        places = {where: one for where, one in known.items() if where[0] == topic}
        missing = [where for where, one in places.items() if one.offset < 0]
        beside = {at[1]: CommittedMetadata.of(one) for at, one in places.items() if one.offset >= 0}
        remarks += filter(None, [taken_over(topic, beside.values())])
        if not beside:
            fresh += missing
        elif missing:
            remarks.append(partly_begun(missing, beside, settings.input.start))
    return remarks + _judged(settings, fresh, told)


def require_one_form(settings: Settings, *, rows: bool) -> None:
    """Raise PreflightError where the other form of the app has processed what this one begins.

    The records form keeps offsets of its group, the DataFrame form (``rows``) a checkpoint, and a
    marker in a group of its own: neither knows what the other has done.
    """
    app, inputs = settings.app, settings.input.topics
    group, topics = (app, inputs) if rows else (f"{app}--sink", (settings.output.topic,))
    if not _has_offsets(settings.model_copy(update={"app": group}), topics):
        return
    before, now = ("records", "DataFrame") if rows else ("DataFrame", "records")
    raise PreflightError(
        f"the {before} form of HAPAX_APP={app} has worked here (group {group}), and the {now} form"
        " would process all of it again: they do not take over from each other. Take another"
        " HAPAX_APP, with inputs that the other has not processed"
    )


def _has_offsets(settings: Settings, topics: Iterable[str]) -> bool:
    """Return whether a group has any; False also where that is not known."""
    with suppress(KafkaException), closing(OffsetsClient(reader_properties(settings))) as client:
        places = [where for topic in topics for where in client.partitions_of(topic)]
        found = client.group_offsets(places, ANSWER_S, stable=False)
        return any(one.offset >= 0 for one in found.values())
    return False


def judges(settings: Settings) -> bool:
    """Whether lost offsets are distinguished from a new group.

    Not where START=refuse stops anyway, not for a span that ends, which is begun on purpose, and
    not where outputs may exist without their offsets.
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
    if not judges(settings) or not fresh:
        return []
    if settings.start == "earliest":
        require_one_form(settings, rows=False)
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
    settings: Settings, answers: Mapping[Where, TopicPartition], logs: Mapping[Where, LogOffsets]
) -> dict[Where, int | None]:
    """``answers``: of all partitions of their topics. None: refused. Raises as ``spans``."""
    found: dict[Where, int | None] = {
        w: one.offset for w, one in answers.items() if one.offset >= 0
    }
    missing = [where for where in answers if where not in found]
    beside = {
        topic: [CommittedMetadata.of(answers[where]) for where in found if where[0] == topic]
        for topic in topics_of(missing)
    }
    fresh = [at for at in missing if not beside[at[0]] and at[0] != settings.retry_topic]
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
    """Return what a start would propose instead of beginning; nothing where that is not known."""
    if not judges(settings) or not fresh:
        return {}
    try:
        found = worked(settings, fresh)
    except PreflightError:
        return {}
    if found.as_start or (not found.ours and others(settings, found.reached)):
        return {}
    return found.proposed


# -- Work that outputs and dead letters show ---------------------------------------------------
#
# Each names the record that it was made of. Only their last records are read, and only where an
# input topic has no offset at all. A topic that was deleted and recreated under its name holds
# other records: one that an output names was there before that output was written, by the
# timestamps of both.


class _Effect(NamedTuple):
    """An output or dead letter: its app, where it says so, its record's place, its timestamp."""

    app: str | None
    source: Coordinates
    timestamp_ms: int


class Worked(NamedTuple):
    """What outputs show of some partitions of inputs.

    proposed  the offset after the last record that an output names; the first of the log where
              none does; of topics that no output names, nothing
    reached   the same where an output names one, whether it is in the log any more or not
    as_start  whether HAPAX_INPUT__START leads to the same offsets
    ours      whether a dead letter of this very app is among what was read
    """

    proposed: Progress
    reached: Progress
    as_start: bool
    ours: bool


def worked(settings: Settings, partitions: Iterable[Where]) -> Worked:
    """Return what the last outputs show. Raises PreflightError when they cannot be read."""
    places = list(partitions)
    effects = _last_effects(settings, set(places))
    with closing(BlockingOffsets(settings)) as client:
        logs = client.log_offsets(places) if effects else {}
    topics = _of_these_topics(settings, effects, logs)
    reached = {w: one.source.offset + 1 for w, one in effects.items() if w[0] in topics}
    proposed = {
        where: max(log.log_start, reached.get(where, 0))
        for where, log in logs.items()
        if where[0] in topics
    }
    as_start = starts_as_proposed(proposed, logs, settings.input.start)
    ours = any(effects[where].app == settings.app for where in reached)
    return Worked(proposed, reached, as_start, ours)


def _last_effects(settings: Settings, places: set[Where]) -> dict[Where, _Effect]:
    target = settings.target
    names = {settings.output.topic, settings.dead_letter.topic or settings.output.topic}
    with closing(BlockingOffsets(target)) as client:
        there = client.partitions(sorted(names - client.absent(names)))
        logs = client.log_offsets(there)
    logs = {where: log for where, log in logs.items() if log.log_start < log.last_stable}
    found: dict[Where, _Effect] = {}
    give_up_s = time.monotonic() + WITHIN_S
    ends = {where: log.last_stable for where, log in logs.items()}
    for tail in TAILS:
        starts = {where: max(log.log_start, log.last_stable - tail) for where, log in logs.items()}
        spans = {where: (starts[where], ends[where]) for where in starts}
        for effect in _effects(target, spans, give_up_s):
            where = (effect.source.topic, effect.source.partition)
            if where not in places or effect.app not in {None, settings.app}:
                continue
            if where not in found or found[where].source.offset < effect.source.offset:
                found[where] = effect
        ends = starts
        if len(found) == len(places) or time.monotonic() > give_up_s:
            break
    return found


def _effects(
    target: Settings, spans: Mapping[Where, tuple[int, int]], give_up_s: float
) -> Iterator[_Effect]:
    for chunk in RangeReader(target).read(spans):
        for record, _readable in chunk:
            headers = dict(record.headers)
            source, app = coordinates(headers.get(SOURCE)), headers.get(APP)
            if source is not None:
                name = None if app is None else app.decode("utf-8", "replace")
                yield _Effect(name, source, record.timestamp_ms)
        if time.monotonic() > give_up_s:
            return


def _of_these_topics(
    settings: Settings, effects: Mapping[Where, _Effect], logs: Mapping[Where, LogOffsets]
) -> set[str]:
    """Return the topics whose records the effects name; of the others an earlier one was meant."""
    there = {
        where: one.source.offset
        for where, one in effects.items()
        if one.source.offset < logs[where].high_watermark
    }
    spans = {where: (at, at + 1) for where, at in there.items() if at >= logs[where].log_start}
    records = RangeReader(settings).firsts(spans, ANSWER_S)
    votes: dict[str, set[bool | None]] = {}
    for where in there:
        one = records.get(where)
        before = one and one.record.timestamp_ms <= effects[where].timestamp_ms
        votes.setdefault(where[0], set()).add(before)
    return {topic for topic, found in votes.items() if True in found or False not in found}


def others(settings: Settings, reached: Progress) -> list[str]:
    """Return the groups of Hapax that have come as far in one of these, as far as is known."""
    ids = topic_ids(settings)
    try:
        found = list(offsets_of_groups(settings, reached))
    except (KafkaException, TimeoutError):
        return []
    return [name for name, offsets in found if _reached(offsets, reached, ids)]


def offsets_of_groups(
    settings: Settings, places: Iterable[Where]
) -> Iterator[tuple[str, list[TopicPartition]]]:
    """Yield what this user may see; raise KafkaException or TimeoutError where none is listed."""
    asked = [TopicPartition(*where) for where in places]
    admin = AdminClient({**admin_properties(reader_properties(settings)), "log_level": 0})
    listed = admin.list_consumer_groups(request_timeout=ANSWER_S).result(ANSWER_S).valid
    names = sorted(one.group_id for one in listed if one.group_id != settings.app)[:GROUPS_MAX]
    answers: dict[str, Any] = {}
    for name in names:
        answers |= admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name, asked)])
    give_up_s = time.monotonic() + ANSWER_S
    for name, answer in answers.items():
        with suppress(KafkaException, TimeoutError):
            yield name, answer.result(max(0.0, give_up_s - time.monotonic())).topic_partitions


def _reached(
    offsets: list[TopicPartition], reached: Progress, ids: Mapping[str, str | None]
) -> bool:
    for one in offsets:
        beside = CommittedMetadata.of(one)
        of_hapax = beside.topic_id in {ids.get(one.topic), None} and beside != CommittedMetadata()
        if of_hapax and one.offset >= reached[one.topic, one.partition]:
            return True
    return False


# -- Where a span begins and stops in each partition, looked up in the logs ------------------------


SILENCE_S = 10.0
ANSWER_TIMEOUT_S = 5.0


def spans(
    properties: Mapping[str, Any], places: Iterable[Where], words: SpanWords
) -> dict[Where, Span]:
    """Return the span of each partition. ``properties``: of a consumer that joins nothing.

    A point in time is the first record at or after it, also of a transaction that is open or was
    aborted: what an open one holds before the end belongs to the span, if it is ever committed.
    Without such a record it is the end of the log. Raises BatchAbortedError when brokers do not
    answer: ask again.
    """
    with closing(OffsetsClient(properties, left_s=lambda: ANSWER_TIMEOUT_S)) as queries:
        return _Lookup(properties, queries, list(places)).spans(words)


class _Lookup:
    def __init__(
        self, properties: Mapping[str, Any], queries: OffsetsClient, places: list[Where]
    ) -> None:
        self._properties = properties
        self._queries = queries
        self._places = places
        self._now_ms = int(time.time() * 1000)
        # Before all else: what arrives in the meantime is beyond the end.
        self._highs = self._offsets(LATEST)

    def spans(self, words: SpanWords) -> dict[Where, Span]:
        starts = self._offsets(EARLIEST) if words.start == "earliest" else self._at(words.start)
        stops = self._highs
        if words.end is not None and words.end != "latest":
            stops = self._at(words.end)
        return {
            where: Span(min(starts[where], stops[where]), stops[where], words.name)
            for where in self._places
        }

    def _at(self, text: str) -> Progress:
        named = offsets_of(text)
        if named is None:
            time_ms = time_of(text, self._now_ms)
            return self._highs | self._from(0 if time_ms is None else max(0, time_ms))
        missing = [f"{topic}/{n}" for topic, n in self._places if (topic, n) not in named]
        if missing:
            problem = f"{text} names no offset of {', '.join(missing)}: name one of every partition"
            raise ConfigurationError(problem)
        return {where: named[where] for where in self._places}

    def _from(self, time_ms: int) -> Progress:
        """Return the first records from that time on, of the partitions that have one.

        Brokers also take a transaction's marker for a record, with the time at which it ended:
        after one there may be records that are older. So what they answer is only where to search.
        """
        asked = self._answers(dict.fromkeys(self._places, time_ms))
        ranges = {at: (low, self._highs[at]) for at, low in asked.items() if low is not None}
        found: Progress = {}
        own = {**self._properties, "isolation.level": "read_uncommitted", "log_level": 0}
        with closing(build(Consumer, own, None)) as consumer:
            fetch = RangeFetch(consumer, ranges, refused=_refused)
            while fetch.ends:
                for message in fetch.poll():
                    where = place_of(message)
                    if where not in found and message.timestamp()[1] >= time_ms:
                        found[where] = offset_of(message)
                for where in fetch.ends.keys() & fetch.undecodable.keys():
                    found.setdefault(where, fetch.undecodable[where].offset)
                for where in fetch.ends.keys() & found.keys():
                    del fetch.ends[where]
                fetch.pause_done()
                if fetch.silent(SILENCE_S):
                    raise BatchAbortedError("records of a span: nothing came", resolved=False)
        return found

    def _offsets(self, at: int) -> Progress:
        found = self._answers(dict.fromkeys(self._places, at))
        known = {where: offset for where, offset in found.items() if offset is not None}
        if len(known) < len(found):
            raise BatchAbortedError("offsets of the input: a log has no end", resolved=False)
        return known

    def _answers(self, wanted: Mapping[Where, int]) -> dict[Where, int | None]:
        try:
            found = self._queries.offsets(wanted)
        except KafkaException as error:
            reason = describe(error.args[0])
            raise BatchAbortedError(f"offsets of the input: {reason}", resolved=False) from error
        if errors := self._queries.take_errors():
            raise BatchAbortedError(f"offsets of the input: {errors[0]}", resolved=False)
        return found


def _refused(place: str, error: KafkaError) -> BatchAbortedError:
    return BatchAbortedError(f"{place} cannot be read: {describe(error)}", resolved=False)
