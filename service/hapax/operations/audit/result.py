"""What an audit of a pipeline comes to: bounds, counts, the classes of anomalies, the verdict.

Pure values, shared by what reads topics, what judges them and what shows the result.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Literal, NamedTuple

import msgspec

from hapax.core.errors import HapaxError

ACCOUNTS = ("with_outputs", "dead_letters", "filtered", "duplicates", "unexplained")
"""What a record that is no anomaly may have come to; ``unexplained``: without effect, and without
a transform it is not known whether it should have one."""


class Compare(StrEnum):
    """How much of what the transform answers today must be in the output."""

    VALUES = "values"
    COUNTS = "counts"
    NONE = "none"


EngineName = Literal["local", "spark"]
"""What reads and judges: this process, or Spark."""


class Class(NamedTuple):
    """One class of anomalies. ``name`` is its key in results."""

    name: str
    title: str
    meaning: str


ANOMALIES = (
    Class("missing", "missing", "records without any effect, although one is due"),
    Class("dedup_loss", "dedup loss", "events of which every record was dropped as a duplicate"),
    Class("doubled", "doubled", "surplus effects of a record that was processed twice"),
    Class("repeated", "repeated", "records with an effect although their id had one already"),
    Class("out_of_order", "out of order", "effects after one of a later record"),
    Class("torn", "torn", "records with some of their outputs only"),
    Class("wrong", "wrong", "records whose outputs differ from what the transform returns"),
    Class("orphaned", "orphaned", "effects that name a record that does not exist"),
    Class("from_aborted", "from aborted", "effects of records whose transaction was aborted"),
    Class("ahead", "ahead", "effects of records at or above the committed offset"),
)
"""In the order in which they are shown. Sources: docs/audit.md."""

NAMES = tuple(one.name for one in ANOMALIES)


class InputBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Where one input partition is judged. All are offsets; each end is the next one.

    low        the oldest record that is still there
    start      judged from here
    until      judged up to here: what was read, and below the committed offset
    committed  of the group, None where it has none
    end        last stable offset
    compacted  records may be gone from the middle
    """

    topic: str
    partition: int
    low: int
    start: int
    until: int
    committed: int | None
    end: int
    compacted: bool = False


class OutputBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Where one partition of outputs or dead letters is read.

    low      the oldest record that is still there
    settled  last stable offset before the committed offsets were asked for
    end      last stable offset after that: read up to here
    high     the end of the log at that time; above ``end`` a transaction is open
    """

    topic: str
    partition: int
    low: int
    settled: int
    end: int
    high: int


class InputFindings(msgspec.Struct, kw_only=True):
    """What one input partition came to.

    counts  ``records``, ACCOUNTS and NAMES; ``outputs`` found; ``hidden`` records of aborted
            transactions; ``before``, ``later``: effects of records that are not judged;
            ``unchecked``: repeated while the claim store was away; ``gone``: effects of records
            that compaction may have removed; ``unexpected_dead``: dead letters of records that
            the transform takes today
    """

    bounds: InputBounds
    counts: dict[str, int]


class OutputFindings(msgspec.Struct, kw_only=True):
    """What one partition of outputs held: records visible, foreign ones among them, hidden."""

    bounds: OutputBounds
    records: int = 0
    foreign: int = 0
    hidden: int = 0


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What is judged, and by which rules.

    claimed       duplicates of the sender have no effect: ids decide
    known         a transform (or the identity) says what is due
    compare       how much of it must be there
    examples_max  examples of each class of anomalies
    """

    app: str
    inputs: list[InputBounds]
    outputs: list[OutputBounds]
    claimed: bool
    known: bool
    compare: Compare
    examples_max: int = 5


class IncompleteError(HapaxError):
    """Less was read than was requested: nothing is concluded."""


class StateFindings(msgspec.Struct, kw_only=True):
    """What the state came to: ``entries`` judged, and how many of them are ``wrong``.

    ``unjudged``: changed by records beyond the committed offsets. An example has what it must be,
    and what it is.
    """

    entries: int = 0
    wrong: int = 0
    unjudged: int = 0
    examples: list[str] = msgspec.field(default_factory=list)
    remarks: list[str] = msgspec.field(default_factory=list)


class Audit(msgspec.Struct, kw_only=True):
    """The result. ``totals`` sums the inputs' counts, and what belongs to no partition."""

    app: str
    compare: str
    inputs: list[InputFindings]
    outputs: list[OutputFindings]
    totals: dict[str, int]
    examples: dict[str, list[str]]
    remarks: list[str]
    duration_s: float = 0.0
    state: StateFindings | None = None

    @property
    def anomalies(self) -> dict[str, int]:
        return {name: self.totals[name] for name in NAMES if self.totals.get(name)}

    @property
    def clean(self) -> bool:
        return not self.anomalies and not (self.state and self.state.wrong)


def audit_of(
    scope: Scope, counts: dict[int, dict[str, int]], outputs: list[OutputFindings]
) -> Audit:
    """Return the result without examples. ``counts``: of each place; negative: of no partition."""
    inputs = [
        InputFindings(bounds=bounds, counts={"records": 0} | counts.get(place, {}))
        for place, bounds in enumerate(scope.inputs)
    ]
    nowhere = sum((Counter(found) for place, found in counts.items() if place < 0), Counter[str]())
    return Audit(
        app=scope.app,
        compare=scope.compare.value if scope.known else "nothing",
        inputs=inputs,
        outputs=outputs,
        totals=total(inputs, nowhere),
        examples={},
        remarks=[],
    )


def total(findings: list[InputFindings], more: dict[str, int]) -> dict[str, int]:
    sums = Counter(dict.fromkeys(("records", *ACCOUNTS, *NAMES), 0))
    for counts in [*(one.counts for one in findings), more]:
        sums.update(counts)
    return dict(sums)
