"""What the audit in this process needs for so many records: time to judge, memory, disk::

    python -m bench.audit_memory --records 10000000

Rows come from a generator, as wide as those that reading yields, without a broker: one output for
each record, ids on all, every hundredth a duplicate, every ten-thousandth missing.
"""

import argparse
import resource
import sys
import time
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from hapax.kafka.read.range_reader import OffsetRange
from hapax.operations.audit.judgement import LocalAudit, judge
from hapax.operations.audit.result import Compare, InputBounds, OutputBounds, Scope
from hapax.operations.audit.rows import InputRow, number_of

Row = tuple[Any, ...]

PARTITIONS, AT_ONCE = 4, 10_000
DUPLICATE, MISSING = 100, 10_000


class _Inputs:
    """Yields inputs of one partition, as hapax.operations.audit.topics.ReadInputs does."""

    def __init__(self, each: int) -> None:
        self.stretches = [
            OffsetRange(number, "in", number, 0, each) for number in range(PARTITIONS)
        ]

    def __call__(self, number: int) -> Iterator[list[Row]]:
        each = self.stretches[number].end
        for first in range(0, each, AT_ONCE):
            yield [self._row(number, at) for at in range(first, min(first + AT_ONCE, each))]
        yield [(number, *([None] * 7), each)]

    def _row(self, place: int, at: int) -> Row:
        original = at - 1 if at % DUPLICATE == 1 else at
        event = blake2b(b"%d/%d" % (place, original), digest_size=16).digest() + b"\1"
        owner = number_of(place, at)
        return (place, *InputRow(at, True, owner, event, 1, hash(event), None), None)  # noqa: FBT003


class _Effects:
    """Yields outputs of one partition, as hapax.operations.audit.topics.ReadEffects does."""

    def __init__(self, each: int) -> None:
        self.stretches = [
            OffsetRange(number, "out", number, 0, each) for number in range(PARTITIONS)
        ]

    def __call__(self, number: int) -> Iterator[list[Row]]:
        each = self.stretches[number].end
        rows: list[Row] = []
        for at in range(each):
            if at % DUPLICATE != 1 and at % MISSING != 2:
                event = blake2b(b"%d/%d" % (number, at), digest_size=16).digest() + b"\1"
                row = (number, at, number, at, 1, 1, hash(event), False, None, None, None, None)
                rows.append(row)
            if len(rows) == AT_ONCE:
                yield rows
                rows = []
        yield rows
        yield [(number, *([None] * 8), each, 0, 0)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    each = parser.parse_args().records // PARTITIONS
    began_s = time.monotonic()
    scope = Scope(
        app="a",
        inputs=[
            InputBounds(
                topic="in", partition=number, low=0, start=0, until=each, committed=each, end=each
            )
            for number in range(PARTITIONS)
        ],
        outputs=[
            OutputBounds(topic="out", partition=number, low=0, settled=each, end=each, high=each)
            for number in range(PARTITIONS)
        ],
        claimed=True,
        known=True,
        compare=Compare.VALUES,
    )
    with LocalAudit.opened(lambda *_progress: None) as engine:
        engine.read("inputs", _Inputs(each), "reading input")
        engine.read("effects", _Effects(each), "reading outputs")
        read_s = time.monotonic() - began_s
        found = judge(engine, scope)
    judged_s = time.monotonic() - began_s - read_s
    most_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(
        f"{found.totals['records']:,} records: {found.anomalies}, {found.totals['duplicates']:,}"
        f" duplicates; rows stored in {read_s:.0f} s, judged in {judged_s:.0f} s;"
        f" at most {most_mb:.0f} MiB resident\n"
    )


if __name__ == "__main__":
    main()
