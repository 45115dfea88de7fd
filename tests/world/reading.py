"""Which records of a topic a client delivers, and the lag that its group keeps at rest."""

from __future__ import annotations

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import TYPE_CHECKING

from tests.kit.topics import committed, ends
from tests.world.programs import Answer, ask
from tests.world.topics import FIELDS, FILLER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.world.installed import Command
    from tests.world.programs import Seen

IDLE_S = 2
AT_ONCE = 4
"""Programs side by side: most of their time is waiting for nothing more to come."""
LEVELS = ("default", "read_committed")
LAGS = ("aborted", "tail", "only", "open")
"""Topics at whose end a group's offset may stand before the end for ever."""
VARYING = ("compacted", "hapax")
"""Topics with as many markers as transactions were needed: another number in each run."""
_KINDS = {b"c-": "committed", b"a-": "aborted"}
_COUNTED = ("committed", "aborted", "tombstones", "markers")


def delivered(brokers: str, topics: dict[str, str], command: Command) -> dict[str, str]:
    """Return question → answer: each topic at each level, four programs at a time."""

    def one(level: str, shape: str) -> tuple[str, str]:
        asked = {"bootstrap": brokers, "topic": topics[shape], "level": level, "idle_s": IDLE_S}
        answer = ask(command, "read", asked)
        told = (_fields if shape == "fields" else _counts)(answer)
        is_exact = shape not in VARYING
        return f"{shape}, {level}", told if is_exact else re.sub(r"\d+ markers", "markers", told)

    # How many of a killed worker's outputs were aborted is another number each time.
    asked = [pair for pair in product(LEVELS, topics) if pair != ("default", "hapax")]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(pool.map(one, *zip(*asked, strict=True)))


def lags(brokers: str, topics: dict[str, str], command: Command, group: str) -> dict[str, str]:
    """Return the lag at rest, end minus committed offset, as other tools count it."""

    def one(shape: str) -> tuple[str, str]:
        topic, name = topics[shape], f"{group}-{shape}"
        asked = {"bootstrap": brokers, "topic": topic, "group": name, "idle_s": IDLE_S}
        answer = ask(command, "group", asked)
        offset = committed(brokers, name, topic)[0]
        end = ends(brokers, topic, "read_uncommitted")[0]
        at = "no offset" if offset is None else f"lag {end - offset}"
        return f"{shape}, lag at rest", f"{at}, {_counts(answer)}"

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(pool.map(one, LAGS))


def _counts(answer: Answer) -> str:
    """Return how many of each kind: a marker has none of our values, a duplicate a place twice."""
    kinds = Counter(_kind(record) for record in _once(answer.records))
    twice = len(answer.records) - sum(kinds.values())
    words = [f"{kinds[kind]} {kind}" for kind in _COUNTED if kinds[kind]]
    words += [f"{twice} twice"] if twice else []
    words += [f"error: {answer.failure}"] if answer.failure else []
    return ", ".join(words) or "nothing"


def _once(records: Sequence[Seen]) -> list[Seen]:
    return list({(record.partition, record.offset): record for record in records}.values())


def _kind(record: Seen) -> str:
    if record.value is None:
        return "tombstones"
    if record.value == FILLER:
        return "fillers"
    return _KINDS.get(record.value[:2], "markers")


def _fields(answer: Answer) -> str:
    """Return "as written", or what differs of each record that differs."""
    if answer.failure:
        return f"error: {answer.failure}"
    found = {record.offset: record for record in answer.records}
    words = []
    for offset, given in enumerate(FIELDS):
        record = found.get(offset)
        if record is None:
            words.append(f"record {offset} is missing")
            continue
        pairs = (
            ("key", given.key, record.key),
            ("value", given.value, record.value),
            ("headers", given.headers, record.headers),
        )
        words += [f"{name} {was!r} is {seen!r}" for name, was, seen in pairs if was != seen]
    return "; ".join(words) or "as written"
