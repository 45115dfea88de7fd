"""Trials: a group that is broken on purpose, one aimed fault, and which anomaly must come of it.

A trial that shows none of what it must is a failure of the proof, not a success of the loop.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from hapax.sandbox import Sandbox
from tests.fault.checking.judge import judge
from tests.fault.controls.recipes import nothing
from tests.fault.controls.stand import PATIENCE_S, Stand
from tests.fault.reporting import machine
from tests.fault.results import Run, Strike, write_run
from tests.kit.proxy import FaultProxy
from tests.kit.turn import Box, share, turn

SEED = 1
TRIES = 3
FIRST_OUTPUT_RECORDS = 200
LAG = "realtime-lag"
"""What a naive loop shows at the end of any input that has transactions: no anomaly of its own."""


@dataclass(frozen=True)
class Trial:
    """One group, one fault.

    command   words behind the interpreter; empty: the control or mutant of this name
    strike    provokes the anomaly; returns how often it struck
    rows      of the fault matrix
    expected  one of these classes must show; empty: all must be well
    rate      records a second that are written
    claims    whether it drops events that were written twice upstream
    late      members start when this many records are there
    settle_s  how long the members may take to reach the end
    quick     belongs to the part that CI runs choose from
    rare      its race comes about in less than every second try: make full plays it, no share does
    """

    name: str
    strike: Callable[[Stand], int]
    expected: tuple[str, ...] = ()
    kind: str = "control"
    command: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    claims: bool = False
    rate: int = 1000
    late: int = 0
    settle_s: float = 20.0
    quick: bool = False
    rare: bool = False
    note: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        return self.command or ("-m", f"tests.fault.{self.kind}s", self.name)


def undisturbed(trial: Trial) -> Trial:
    """Return the same group with no fault: it must be clean.

    Feeding began before the group was there, and a peer may be slower than the feeder.
    """
    return replace(trial, strike=nothing, expected=(), rows=(), settle_s=PATIENCE_S)


def play(trial: Trial, sandbox: Sandbox, proxy: FaultProxy, folder: Path) -> Run:
    began_s = time.monotonic()
    run = Run(
        name=trial.name,
        kind=trial.kind,
        seed=SEED,
        commit=machine.commit(),
        began=datetime.now(UTC).isoformat(timespec="seconds"),
        expected=trial.expected,
    )
    words = (sys.executable, *trial.words)
    with Stand(
        trial.name, words, sandbox, proxy, folder, trial.settings, claims=trial.claims
    ) as stand:
        stand.feed(trial.rate, SEED)
        stand.await_(lambda: stand.feeder.written >= trial.late, "records")
        stand.member()
        stand.await_progress(FIRST_OUTPUT_RECORDS)
        run.strikes.append(_strike(trial, stand, began_s))
        ledger = stand.drain(trial.settle_s, to_the_end=trial.kind != "control")
        run.judgement = judge(stand.topics, ledger, None)
        run.judgement.counts.kills = sum(member.kills for member in stand.members.values())
        run.judgement.counts.starts = sum(member.starts for member in stand.members.values())
        for name, texts in stand.found.items():
            run.judgement.violations[name] = run.judgement.violations.get(name, 0) + len(texts)
            run.judgement.examples[name] = texts
        if trial.kind == "control" and run.judgement.violations.pop(LAG, 0):
            run.notes.append("its lag never reaches 0: it commits nothing behind markers")
        run.notes += [*stand.words, *([trial.note] if trial.note else [])]
    run.seconds = round(time.monotonic() - began_s, 1)
    return run


def _strike(trial: Trial, stand: Stand, began_s: float) -> Strike:
    at_s = time.monotonic() - began_s
    try:
        struck = trial.strike(stand)
    except AssertionError as error:
        stand.note("hang", str(error))
        struck = 0
    finally:
        stand.proxy.clear()
        stand.bring_back()
    return Strike(
        rows=trial.rows,
        fault=trial.strike.__name__.replace("_", " "),
        target="w-0",
        struck=struck,
        at_s=round(at_s, 2),
        healed_s=round(time.monotonic() - began_s, 2),
        note="; ".join(stand.words),
    )


def main(trials: Sequence[Trial], words: Sequence[str]) -> int:
    asked = parsed(trials, words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing it started stays
    box = Box.of(asked)
    return play_all(chosen(trials, asked, box), asked.folder, box)


def parsed(trials: Sequence[Trial], words: Sequence[str]) -> argparse.Namespace:
    """Return what the command line asks for; it must name trials in one of three ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--all", action="store_true", help="play every trial")
    which.add_argument("--quick", action="store_true", help="play those that CI chooses from")
    which.add_argument("--play", nargs="+", default=[], choices=[each.name for each in trials])
    parser.add_argument("--share", type=int, default=1, help="of those, one in so many, by turn")
    parser.add_argument("--turn", type=int, default=turn(), help="as of the commit, or TURN")
    parser.add_argument("--undisturbed", action="store_true", help="without any fault: all clean")
    parser.add_argument("--folder", type=Path, help="where to keep what came of them")
    Box.arguments(parser)
    return parser.parse_args(words)


def chosen(trials: Sequence[Trial], asked: argparse.Namespace, box: Box) -> list[Trial]:
    if asked.all or asked.quick:
        left = [trial for trial in trials if asked.share == 1 or not trial.rare]
        wide = [trial for trial in left if asked.all or trial.quick]
        found = box.order(share(wide, asked.share, asked.turn), trials, _name, asked.turn)
    else:
        found = [trial for trial in trials if trial.name in asked.play]
    return [undisturbed(trial) for trial in found] if asked.undisturbed else found


def _name(trial: Trial) -> str:
    return trial.name


def play_all(trials: Sequence[Trial], folder: Path | None, box: Box) -> int:
    """Play trials on one cluster; print what came of each; return the exit code."""
    failed = 0
    logs = Path(tempfile.mkdtemp(prefix="hapax-trials-"))
    with Sandbox(proxied=True) as sandbox, FaultProxy.before(sandbox) as proxy:
        for trial in box.fill(iter(trials), _name):
            run = _play_until_shown(trial, sandbox, proxy, logs)
            failed += not run.as_expected
            if folder is not None:
                write_run(run, folder)
            _print(run, logs=logs)
    return 0 if box.close() and not failed else 1


def _play_until_shown(trial: Trial, sandbox: Sandbox, proxy: FaultProxy, logs: Path) -> Run:
    """Play a trial that must fail up to ``TRIES`` times: its race may not come about at once.

    One that must be clean has one try.
    """
    run = play(trial, sandbox, proxy, logs / trial.name)
    tries = TRIES if trial.expected else 1
    for number in range(2, tries + 1):
        if run.as_expected:
            break
        run = play(trial, sandbox, proxy, logs / f"{trial.name}-{number}")
        run.notes.append(f"try {number} of {tries}: it did not show before")
    return run


def _print(run: Run, *, logs: Path) -> None:
    good = run.as_expected
    violations = run.judgement.violations
    found = ", ".join(f"{name} {count}" for name, count in violations.items() if count)
    wanted = " or ".join(run.expected) or "nothing"
    where = "" if good else f"  (logs: {logs})"
    sys.stdout.write(
        f"{'as expected' if good else 'NOT AS EXPECTED':16}{run.name:28}{run.seconds:6.1f} s  "
        f"{run.judgement.counts.records:6} records  must show {wanted}: {found or 'nothing'}"
        f"  {'; '.join(run.notes)}{where}\n"
    )
    sys.stdout.flush()
