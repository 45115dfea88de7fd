"""Reads a run back and has it judged."""

import logging
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from hapax.sandbox import Sandbox, SandboxTopic
from tests.fault.checking import reading
from tests.fault.checking.checker import check
from tests.fault.checking.history import DEAD_WAY, History, Lane, found_in, place_keys
from tests.fault.checking.reading import Errand, Read
from tests.fault.checking.reading_columns import Table
from tests.fault.feeding.ledger import Ledger
from tests.fault.results import Judgement
from tests.fault.watching.live import LiveHistory
from tests.kit import topics as kit_topics
from tests.kit.pipeline_under_test import environment

# -- Which transactions are open, by what their coordinators have written down -------------

LOG = "__transaction_state"
_STATUS_AT = 16
"""Behind version (2 bytes), producer id (8), epoch (2) and timeout (4)."""
STATUSES = {1: "ongoing", 2: "committing", 3: "aborting"}


def open_transactions(bootstrap: str, topics: Sequence[str], feeder: str) -> list[str]:
    """Return ids, with their states, of open transactions that touch any of ``topics``."""
    last: dict[str, str] = {}
    partitions = range(len(reading.ends(bootstrap, LOG)))
    for message in chain.from_iterable(
        reading.chunks(bootstrap, LOG, partitions, "read_uncommitted")
    ):
        name, value = _name(message.key() or b""), message.value()
        touches = value is not None and any(topic.encode() in value for topic in topics)
        status = STATUSES.get(value[_STATUS_AT]) if value is not None and touches else None
        if status is None:
            last.pop(name, None)
        else:
            last[name] = status
    return [f"{name}: {status}" for name, status in last.items() if name != feeder]


def _name(key: bytes) -> str:
    (length,) = struct.unpack_from(">h", key, 2)
    return key[4 : 4 + length].decode(errors="replace")


# -- Reads a run back and has it judged ----------------------------------------------------

SETTLE_S = 30.0
"""Transaction timeout and the broker's round to look for it: then nothing may be open."""
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Topics:
    """What a run has written and read.

    app      consumer group
    outputs  by way: main, second
    claims   whether second copies of an event are to be dropped
    headers  whether effects carry exactly the headers that the service promises
    """

    bootstrap: str
    app: str
    source: str
    outputs: tuple[str, ...]
    dead: str
    claims: bool = True
    headers: bool = False

    @classmethod
    def create(cls, sandbox: Sandbox, app: str, partitions: int, **facts: bool) -> "Topics":
        source, outputs, dead = f"{app}-in", (f"{app}-out", f"{app}-out-2"), f"{app}-dead"
        written = [SandboxTopic(name, partitions) for name in (source, *outputs)]
        sandbox.create_topics(*written, SandboxTopic(dead))
        bootstrap = sandbox.bootstrap_servers
        return cls(bootstrap=bootstrap, app=app, source=source, outputs=outputs, dead=dead, **facts)

    @property
    def written(self) -> tuple[str, ...]:
        return (*self.outputs, self.dead)

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a member; ``more`` with ``HAPAX_``."""
        return environment(self.app, self.source, self.outputs[0], self.dead, **more)


def judge(topics: Topics, ledger: Ledger, live: LiveHistory | None) -> Judgement:
    """Read everything back, twice, and decide. The members of the run have ended."""
    began_s = time.monotonic()
    history = read_back(topics, ledger, live)
    read_s = time.monotonic()
    judgement = check(history)
    records = len(history.inputs) + len(history.effects)
    _LOG.info(
        "%d records and effects: read twice in %.1f s (%.0f a second), judged in %.1f s",
        records,
        read_s - began_s,
        records / max(read_s - began_s, 1e-9),
        time.monotonic() - read_s,
    )
    return judgement


def read_back(topics: Topics, ledger: Ledger, live: LiveHistory | None) -> History:
    bootstrap, source = topics.bootstrap, topics.source
    names = [(topics.dead, DEAD_WAY), *((name, way) for way, name in enumerate(topics.outputs))]
    left = _await_settled(topics, ledger.run)
    logs = {name: reading.ends(bootstrap, name) for name in (source, *topics.written)}
    count = len(logs[source])
    lanes = [
        Lane(topic=name, partition=number, way=way, ends=one)
        for name, way in names
        for number, one in enumerate(logs[name])
    ]
    with reading.scratch() as folder:
        errands = [
            reading.Errand(bootstrap, name, share, kind, source, ledger.run, folder)
            for name, kinds in _plan(topics)
            for kind in kinds
            for share in reading.shares(len(logs[name]))
        ]
        found = dict(zip(errands, reading.read(errands), strict=True))
        places = {(lane.topic, lane.partition): at for at, lane in enumerate(lanes)}
        effects, whos = joined(_pieces(found, {"output", "dead"}), places)
        own = {(source, number): number for number in range(count)}
        inputs, _whos = joined(_pieces(found, {"input"}), own)
        offsets = [p for p in _pieces(found, {"offsets"}) if p[0].topic == source]
        everything, _whos = joined(offsets, own)
        all_made = sum(len(read.rows) for e, read in found.items() if e.kind == "offsets")
    committed = kit_topics.committed(bootstrap, topics.app, source)
    return History(
        source=source,
        inputs=inputs,
        aborted=_beyond(everything, inputs),
        input_ends=reading.ends(bootstrap, source),
        committed=[committed[number] for number in range(count)],
        lanes=lanes,
        effects=effects,
        ledger=ledger,
        whos=whos or [""],
        hidden=all_made - len(everything) - len(effects),
        open=left,
        live=live,
        claims=topics.claims,
        headers=topics.headers,
    )


def _plan(topics: Topics) -> list[tuple[str, tuple[reading.Kind, ...]]]:
    """Return what to read of which topic, the most first."""
    return [
        *((name, ("output", "offsets")) for name in topics.outputs),
        (topics.source, ("input", "offsets")),
        (topics.dead, ("dead", "offsets")),
    ]


def _pieces(found: dict[Errand, Read], kinds: set[reading.Kind]) -> list[tuple[Errand, Read]]:
    return [(errand, read) for errand, read in found.items() if errand.kind in kinds]


def joined(
    reads: list[tuple[Errand, Read]], places: dict[tuple[str, int], int]
) -> tuple[Table, list[str]]:
    """Return one table of all, sorted by place, with one list of names: copied but once.

    places   by topic and partition the number that stands for it in ``lane``
    """
    pieces = []
    names: dict[str, int] = {}
    for errand, read in reads:
        whos = np.array([names.setdefault(name, len(names)) for name in read.whos], np.int16)
        stops = np.searchsorted(read.rows["lane"], errand.partitions, "right").tolist()
        starts = np.searchsorted(read.rows["lane"], errand.partitions).tolist()
        for number, start, stop in zip(errand.partitions, starts, stops, strict=True):
            pieces.append((places[errand.topic, number], read.rows[start:stop], whos))
    pieces.sort(key=lambda piece: piece[0])
    table = np.asarray(np.concatenate([rows for _place, rows, _whos in pieces]))
    at = 0
    for place, rows, whos in pieces:
        part = table[at : at + len(rows)]
        part["lane"] = place
        if whos.size:
            part["who"] = whos[part["who"]]
        at += len(rows)
    return table, list(names)


def _beyond(everything: Table, visible: Table) -> Table:
    keys = place_keys(visible["lane"], visible["offset"])
    return everything[found_in(keys, place_keys(everything["lane"], everything["offset"])) < 0]


def _await_settled(topics: Topics, run: str) -> list[str]:
    """Wait until nothing is open, but not for ever; return what still is."""
    deadline_s = time.monotonic() + SETTLE_S
    while True:
        stuck = any(
            one.stable < one.high
            for name in topics.written
            for one in reading.ends(topics.bootstrap, name)
        )
        left = open_transactions(topics.bootstrap, topics.written, f"{run}-feeder")
        if not (stuck or left) or time.monotonic() > deadline_s:
            return left
        time.sleep(0.5)
