"""What a run of the fault suite has found: written by runs, read by the report.

Times are seconds since the run began; ``*_s`` is None where nothing was measured.
"""

import gzip
import math
from pathlib import Path

import msgspec

from tests.fault.reporting import machine

VIOLATIONS = (
    "lost-write",
    "lost",
    "dedup-loss",
    "duplicate",
    "repeated",
    "G1a",
    "precommitted-read",
    "inconsistent-offsets",
    "poll-skip",
    "nonmonotonic-poll",
    "order",
    "torn-txn",
    "offset-effect",
    "phantom",
    "transform",
    "unseen",
    "realtime-lag",
    "stuck-LSO",
    "hang",
    "leak",
    "undefined-exit",
    "row-demand",
)
"""Every class the suite knows; docs/proof.md explains each, checker.py decides it."""
LATE_MAX = 2.0
"""Times the promise: of 92 recorded faults of runs that were alone 14 came late, the worst 1.4."""


class Strike(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One fault, from when it struck until all was well again.

    rows        ids of the matrix: ``("P5",)``, ``("S-K1", "X1")``
    fault       the class it is counted under: ``worker killed, EndTxn delivered``
    target      whom: ``w-1``, ``broker 2``, ``redis``
    struck      how often it really struck (signals sent, frames held, calls refused): 0 fails the
                run, because a fault that found nothing is no fault
    at_s        when it struck; ``healed_s`` when it was taken away
    recovery_s  from ``recovery_from`` to the first visible output, of every input partition that
                had one before, of a record that was written after that moment
    kafka_s     of that, until brokers led every partition again: no client can be sooner
    stall_s     longest time that a last stable offset stood still below its high watermark
    promise     which promise of a time it is held against, and ``promised_s`` how long; only where
                the fault came alone
    """

    rows: tuple[str, ...]
    fault: str
    target: str
    struck: int
    at_s: float
    healed_s: float
    recovery_from: str = "strike"
    kafka_s: float | None = None
    recovery_s: float | None = None
    stall_s: float | None = None
    promise: str = ""
    promised_s: float | None = None
    note: str = ""

    @property
    def late(self) -> bool:
        return self.promised_s is not None and self._recovered_s > self.promised_s

    @property
    def much_too_late(self) -> bool:
        """Whether that was by more than the machine and the sampling can be blamed for."""
        return self.promised_s is not None and self._recovered_s > LATE_MAX * self.promised_s

    @property
    def _recovered_s(self) -> float:
        return math.inf if self.recovery_s is None else self.recovery_s


class Sample(msgspec.Struct, frozen=True):
    """One second: records written and records done so far, and how far behind the output is."""

    at_s: float
    written: int
    done: int
    lag: int


class Counts(msgspec.Struct, kw_only=True):
    """What went through. ``hidden_*``: records of aborted transactions that readers never saw."""

    records: int = 0
    distinct: int = 0
    duplicates: int = 0
    filtered: int = 0
    outputs: int = 0
    dead_letters: int = 0
    hidden_in: int = 0
    hidden_out: int = 0
    committed: int = 0
    aborted: int = 0
    unknown: int = 0
    rebalances: int = 0
    fences: int = 0
    doubt_fences: int = 0
    kills: int = 0
    starts: int = 0


class Judgement(msgspec.Struct, kw_only=True):
    """What the checker says: by class how many, with the first examples of each."""

    counts: Counts = msgspec.field(default_factory=Counts)
    violations: dict[str, int] = msgspec.field(default_factory=dict)
    examples: dict[str, list[str]] = msgspec.field(default_factory=dict)
    consume_counts: dict[int, int] = msgspec.field(default_factory=dict)
    """Jepsen's: how many distinct events had their effect so many times; the aim is ``{1: N}``."""

    @property
    def anomalies(self) -> dict[str, list[str]]:
        return {name: self.examples.get(name, []) for name, n in self.violations.items() if n}


class Run(msgspec.Struct, kw_only=True):
    """One run on one cluster.

    kind      ``service`` (must be clean), ``control`` (must not be), ``mutant`` (must be caught)
    expected  for controls and mutants: one of these classes must show; empty for the service
    shared    the machine had other work meanwhile: the run's times say nothing about the service
    """

    name: str
    kind: str = "service"
    engine: str = "worker"
    seed: int = 0
    commit: str = ""
    began: str = ""
    seconds: float = 0.0
    expected: tuple[str, ...] = ()
    shared: bool = False
    strikes: list[Strike] = msgspec.field(default_factory=list)
    judgement: Judgement = msgspec.field(default_factory=Judgement)
    samples: list[Sample] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    machine: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def as_judged(self) -> bool:
        found = self.judgement.anomalies
        return bool(found.keys() & set(self.expected)) if self.expected else not found

    @property
    def problems(self) -> list[str]:
        """What is not as it must be; how soon all went on is judged where the run was alone."""
        found = self.judgement.anomalies or "nothing"
        wrong = [] if self.as_judged else [f"{found}, must be {self.expected or 'nothing'}"]
        wrong += [
            f"{one.fault} struck nothing {one.note}" for one in self.strikes if not one.struck
        ]
        late = [one for one in self.strikes if one.much_too_late and not self.shared]
        wrong += [f"{one.fault}: {one.recovery_s} s, not {one.promised_s:g}" for one in late]
        return [f"{self.name}: {text}" for text in wrong]

    @property
    def as_expected(self) -> bool:
        return not self.problems


class Case(msgspec.Struct, kw_only=True, frozen=True):
    """One test that stands for rows of the matrix."""

    rows: tuple[str, ...]
    test: str
    outcome: str
    seconds: float
    struck: int | None = None
    note: str = ""


class Kept(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What the page of the repository is made of: all of it in one packed file."""

    runs: list[Run] = msgspec.field(default_factory=list)
    cases: list[Case] = msgspec.field(default_factory=list)

    def joined(self, runs: list[Run], cases: list[Case]) -> "Kept":
        """Return it with newer runs and cases in the place of those of the same name."""
        by_name = {(run.name, run.seed): run for run in (*self.runs, *runs)}
        by_test = {case.test: case for case in (*self.cases, *cases)}
        return Kept(
            runs=sorted(by_name.values(), key=lambda run: run.began), cases=list(by_test.values())
        )


def write_kept(kept: Kept, path: Path) -> None:
    """Write the packed file, the same bytes for the same content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(msgspec.json.encode(kept), mtime=0))


def read_kept(path: Path) -> Kept:
    if not path.exists():
        return Kept()
    return msgspec.json.decode(gzip.decompress(path.read_bytes()), type=Kept)


def write_run(run: Run, folder: Path) -> Path:
    """Keep a run as a file of its own in ``folder``, with where and of what it was made."""
    folder.mkdir(parents=True, exist_ok=True)
    run.commit = run.commit or machine.commit()
    run.machine = run.machine or machine.facts()
    name = "".join(letter if letter.isalnum() else "-" for letter in run.name)
    path = folder / f"run-{name}-{run.seed}.json"
    path.write_bytes(msgspec.json.encode(run) + b"\n")
    return path


def read_runs(folder: Path) -> list[Run]:
    runs = [msgspec.json.decode(p.read_bytes(), type=Run) for p in folder.glob("run-*.json")]
    return sorted(runs, key=lambda run: run.began)


def note_case(case: Case, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "cases.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(case) + b"\n")


def read_cases(folder: Path) -> list[Case]:
    """Return what tests have noted, the last word of each test only."""
    path = folder / "cases.jsonl"
    lines = path.read_bytes().splitlines() if path.exists() else []
    cases = [msgspec.json.decode(line, type=Case) for line in lines]
    return list({case.test: case for case in cases}.values())
