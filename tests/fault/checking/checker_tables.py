"""A world of texts as the tables that the checker is given."""

import random
from zlib import crc32

import numpy as np
from confluent_kafka import Message

from tests.fault.checking import checker_histories, reading_columns as columns
from tests.fault.checking.history import DEAD_WAY, History, Lane
from tests.fault.checking.reading import Ends
from tests.fault.checking.reading_columns import Table
from tests.fault.feeding.ledger import COPIES, Ledger
from tests.fault.watching.live import MOMENT, SEEN, LiveHistory


def history(world: checker_histories.World) -> History:
    names = columns.Names(checker_histories.SOURCE, checker_histories.RUN, {})
    lanes, tables, seen = [], [], []
    for at, lane in enumerate(checker_histories.LANES):
        messages = _messages(world, lane)
        table = (columns.dead_letters if lane[0] == DEAD_WAY else columns.outputs)(messages, names)
        table["lane"] = at
        tables.append(table)
        seen.append(_rows(at, messages))
        end = (int(table["at"][-1]) if len(table) else -1) + 2
        ends = Ends(0, end - 1 if lane in world.stuck else end, end)
        lanes.append(
            Lane(topic=checker_histories.TOPICS[lane[0]], partition=lane[1], way=lane[0], ends=ends)
        )
    fates = np.array(world.fates, np.uint8).reshape(-1, COPIES)
    return History(
        source=checker_histories.SOURCE,
        inputs=_inputs(world.inputs),
        aborted=_inputs(world.aborted)[["offset", "lane"]],
        input_ends=world.ends,
        committed=world.committed,
        lanes=lanes,
        effects=np.concatenate(tables),
        ledger=Ledger(checker_histories.RUN, fates),
        whos=[name.decode() for name in names.whos] or [""],
        open=world.open,
        live=_live(world, seen),
        claims=world.claims,
    )


def _inputs(given: list[checker_histories.Given]) -> Table:
    ordered = sorted(given, key=lambda one: one.where)
    return columns.inputs(
        [
            Message(
                topic=checker_histories.SOURCE,
                partition=one.place,
                offset=one.offset,
                key=b"key-%d" % one.content.key,
                value=one.value,
                headers=list(one.headers.items()),
            )
            for one in ordered
        ]
    )


def _messages(world: checker_histories.World, lane: tuple[int, int]) -> list[Message]:
    rng = random.Random(f"{lane} {len(world.fates)}")
    offset, made = 0, []
    for effect in world.lanes[lane]:
        offset += rng.choice([1, 1, 2])
        made.append(
            Message(
                topic=checker_histories.TOPICS[lane[0]],
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


def _live(world: checker_histories.World, seen: list[Table]) -> LiveHistory:
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
        lanes=[
            (checker_histories.TOPICS[way], partition) for way, partition in checker_histories.LANES
        ],
        seen=mixed,
        moments=np.zeros(0, MOMENT),
        complete=True,
        partitions=checker_histories.PARTITIONS,
    )
