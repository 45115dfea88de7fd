"""A world of texts as the tables that the checker is given."""

import random
from zlib import crc32

import numpy as np
from confluent_kafka import Message

from tests.fault.checking import reading_columns as columns
from tests.fault.checking.checker_histories import (
    LANES,
    PARTITIONS,
    RUN,
    SOURCE,
    TOPICS,
    Given,
    World,
)
from tests.fault.checking.history import DEAD_WAY, History, Lane
from tests.fault.checking.reading import Ends
from tests.fault.checking.reading_columns import Table
from tests.fault.feeding.ledger import COPIES, Ledger
from tests.fault.watching.live import MOMENT, SEEN, LiveHistory


def history(world: World) -> History:
    names = columns.Names(SOURCE, RUN, {})
    lanes, tables, seen = [], [], []
    for at, lane in enumerate(LANES):
        messages = _messages(world, lane)
        parse = columns.dead_letters if lane[0] == DEAD_WAY else columns.outputs
        table = parse(messages, names)
        table["lane"] = at
        tables.append(table)
        seen.append(_rows(at, messages))
        end = (int(table["at"][-1]) if len(table) else -1) + 2
        stable = end - 1 if lane in world.stuck else end
        ends = Ends(0, stable, end)
        lanes.append(Lane(topic=TOPICS[lane[0]], partition=lane[1], way=lane[0], ends=ends))
    fates = np.array(world.fates, np.uint8).reshape(-1, COPIES)
    return History(
        source=SOURCE,
        inputs=_inputs(world.inputs),
        aborted=_inputs(world.aborted)[["offset", "lane"]],
        input_ends=world.ends,
        committed=world.committed,
        lanes=lanes,
        effects=np.concatenate(tables),
        ledger=Ledger(RUN, fates),
        whos=[name.decode() for name in names.whos] or [""],
        open=world.open,
        live=_live(world, seen),
        claims=world.claims,
    )


def _inputs(given: list[Given]) -> Table:
    ordered = sorted(given, key=lambda one: one.where)
    return columns.inputs(
        [
            Message(
                topic=SOURCE,
                partition=one.place,
                offset=one.offset,
                key=b"key-%d" % one.content.key,
                value=one.value,
                headers=list(one.headers.items()),
            )
            for one in ordered
        ]
    )


def _messages(world: World, lane: tuple[int, int]) -> list[Message]:
    rng = random.Random(f"{lane} {len(world.fates)}")
    offset, made = 0, []
    for effect in world.lanes[lane]:
        offset += rng.choice([1, 1, 2])
        made.append(
            Message(
                topic=TOPICS[lane[0]],
                partition=lane[1],
                offset=offset,
                key=effect.key,
                value=effect.value,
                headers=list(effect.headers.items()),
            )
        )
    return made


def _rows(at: int, messages: list[Message]) -> Table:
    rows = np.zeros(len(messages), SEEN)
    rows["lane"] = at
    rows["offset"] = [message.offset() for message in messages]
    rows["hash"] = [crc32(message.value() or b"") for message in messages]
    return rows


def _live(world: World, seen: list[Table]) -> LiveHistory:
    """Return all rows, lanes in turns; each lane in its order."""
    turns = np.random.default_rng(len(world.fates)).permutation(
        np.repeat(np.arange(len(seen)), [len(rows) for rows in seen])
    )
    mixed = np.zeros(len(turns), SEEN)
    for at, rows in enumerate(seen):
        mixed[turns == at] = rows
    for edit in world.edits:
        mixed = edit(mixed)
    return LiveHistory(
        lanes=[(TOPICS[way], partition) for way, partition in LANES],
        seen=mixed,
        moments=np.zeros(0, MOMENT),
        complete=True,
        partitions=PARTITIONS,
    )
