"""Composition of ``hapax offsets translate``: a group's offsets in a topic to its mirror's.

1. committed  what the group has read of the input, transactions that hold an offset waited for
2. progress   how far the mirror is: what it has not written yet cannot be translated
3. decided    the transactions that wrote it have become visible to readers
4. places     the first record of each partition that comes from the committed offset or a later one
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from hapax.core.committed_metadata import CommittedMetadata
from hapax.core.errors import ConfigurationError, HapaxError, PreflightError
from hapax.core.translation import Halving, Translated
from hapax.kafka.produce.group_offsets import GroupOffsets
from hapax.kafka.produce.target_lane import target_progress
from hapax.kafka.read.offsets_client import BlockingOffsets
from hapax.kafka.read.range_reader import RangeReader
from hapax.operations.reading import MARGIN_S, await_decided

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hapax.core.records import TopicPartition
    from hapax.operations.reading import Tell
    from hapax.settings import Settings

WITHIN_S = 30.0
"""Longest wait for one look at the mirror."""


def translated(settings: Settings, group: str, tell: Tell) -> list[Translated]:
    """Return the places of a group's committed offsets, by partition.

    Partitions without an offset are left out. Raises ConfigurationError for a pipeline that is no
    mirror, HapaxError or PreflightError where a place cannot be told for certain.
    """
    topic = _mirrored(settings)
    with ExitStack() as stack:
        source = stack.enter_context(closing(BlockingOffsets(_of_group(settings, group))))
        target = stack.enter_context(closing(BlockingOffsets(settings.target)))
        places = source.partitions([topic])
        there = target.partitions([settings.output.topic])
        if len(places) != len(there):
            problem = (
                f"{topic} has {len(places)} partitions and {settings.output.topic} has"
                f" {len(there)}: records have not kept theirs, and offsets cannot be translated"
            )
            raise ConfigurationError([problem])
        committed = {
            where: offset
            for where, offset in source.committed(places).items()
            if offset is not None
        }
        if not committed:
            raise PreflightError([f"group {group} has no committed offset in {topic}"])
        _require_mirrored(settings, committed)
        _decide(settings, target, there, tell)
        ends, starts = target.last_stable(there), target.log_starts(there)
        return _places(settings, committed, starts, ends)


def carry_out(settings: Settings, group: str, found: Sequence[Translated], tell: Tell) -> None:
    offsets = GroupOffsets(_of_group(settings.target, group))
    offsets.await_empty(tell)
    offsets.commit(
        {(one.target, one.partition): (one.offset, CommittedMetadata()) for one in found}
    )


def _mirrored(settings: Settings) -> str:
    problem = ""
    if not settings.elsewhere:
        problem = "HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS is unset: outputs are where the input is"
    elif settings.transform is not None:
        problem = (
            f"HAPAX_TRANSFORM={settings.transform}: outputs of a function need not keep partition"
            " and order of their records"
        )
    elif len(settings.input.topics) > 1:
        problem = (
            f"HAPAX_INPUT__TOPICS={','.join(settings.input.topics)}: in a mirror of several topics"
            " an offset stands for none of them"
        )
    if problem:
        raise ConfigurationError([f"{problem}; only a mirror of one topic can be translated"])
    return settings.input.topics[0]


def _of_group(settings: Settings, group: str) -> Settings:
    return settings.model_copy(update={"app": group})


def _require_mirrored(settings: Settings, committed: Mapping[TopicPartition, int]) -> None:
    """Raise HapaxError where the mirror has not come as far as the group."""
    behind = []
    for where, offset in committed.items():
        progress, _group = target_progress(settings.target, where, None)
        done = 0 if progress is None else progress.offset
        if done < offset:
            behind.append(f"{where[0]}/{where[1]}: {done:,} of {offset:,}")
    if behind:
        raise HapaxError(
            f"the mirror has not come as far as the group ({'; '.join(behind)}): let it catch up,"
            " then repeat"
        )


def _decide(
    settings: Settings, target: BlockingOffsets, there: Sequence[TopicPartition], tell: Tell
) -> None:
    """Wait until readers see all that was written with the progress."""
    timeout_ms = settings.transaction.timeout_ms
    _ends, open_ = await_decided(
        target, there, timeout_ms, lambda: tell("waiting for transactions on the mirror")
    )
    if open_:
        raise PreflightError(
            [
                f"{topic}/{number}: a transaction is open since {MARGIN_S:g} s and more: hapax"
                " transactions names it"
                for topic, number in open_
            ]
        )


def _places(
    settings: Settings,
    committed: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> list[Translated]:
    topic = settings.output.topic
    searches = {
        (topic, where[1]): Halving(where, offset, starts[topic, where[1]], ends[topic, where[1]])
        for where, offset in committed.items()
    }
    reader = RangeReader(settings.target)
    while due := {
        where: (at, one.end) for where, one in searches.items() if (at := one.at) is not None
    }:
        firsts = reader.firsts(due, WITHIN_S)
        if silent := due.keys() - firsts.keys():
            raise PreflightError([f"{name}/{number} cannot be read" for name, number in silent])
        for where, first in firsts.items():
            searches[where].see(None if first is None else first.record)
    return [
        Translated(
            topic=where[0],
            partition=where[1],
            committed=offset,
            target=topic,
            offset=ends[topic, where[1]] if found is None else found,
            record=found is not None,
            first=starts[topic, where[1]],
        )
        for where, offset in sorted(committed.items())
        for found in (searches[topic, where[1]].found,)
    ]
