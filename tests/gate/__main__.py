"""What ``make test``, ``make deep``, ``make full`` and ``make soak`` run.

test  all that each commit plays: lint, types, rules, and each promise once on real servers
deep  what CI plays besides, some of it in shares that rotate with the count of commits
full  everything, in parts that resume; each is recorded in docs/proof/full.json
soak  tests again and again beside a busy core, before they are admitted to make test
last  when each part of make full was last played, and each target that is no part of it
note  that such a target has passed
"""

import argparse
import os
import signal
import sys
import time

from tests.gate import admission, full, parts, rotating, running, soaking, verdict
from tests.gate.running import Outcome


def main() -> int:
    wanted = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the parts are ended as well
    began = time.monotonic()
    if wanted.what == "last":
        print(full.table())
        return 0
    if wanted.what == "note":
        full.note_beside(*wanted.tests)
        return 0
    if wanted.what == "soak":
        tests = wanted.tests or list(admission.admitted())
        failed = soaking.soak(tests, runs=wanted.runs, minutes=wanted.minutes)
        print(f"make soak: {failed} failures in {time.monotonic() - began:.0f} s")
        return 1 if failed else 0
    outcomes = {"test": _test, "deep": _deep, "full": _full}[wanted.what](wanted.minutes)
    is_right = verdict.tell(f"make {wanted.what}", outcomes, time.monotonic() - began)
    return 0 if is_right and _is_fresh() else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.gate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=["test", "deep", "full", "soak", "last", "note"])
    parser.add_argument(
        "tests",
        nargs="*",
        help="of soak: tests, or all admitted; of note: the target, and the seconds it took",
    )
    parser.add_argument("--minutes", type=float, default=20.0, help="of deep, full and soak")
    parser.add_argument("--runs", type=int, default=admission.RUNS_MIN, help="of soak")
    return parser.parse_intermixed_args()  # make soak names the tests last


def _test(_minutes: float) -> list[Outcome]:
    return [outcome for group in parts.gate() for outcome in running.run(group)]


def _deep(minutes: float) -> list[Outcome]:
    return [outcome for group in rotating.groups(minutes) for outcome in running.run(group)]


def _full(minutes: float) -> list[Outcome]:
    """Play parts of this round until the time is over."""
    ends = time.monotonic() + 60 * minutes
    outcomes: list[Outcome] = []
    due = full.due()
    for number, part in enumerate(due):
        if outcomes and time.monotonic() > ends:
            left = len(due) - number
            print(f"make full: {left} of {len(full.every())} parts are left; type it again")
            break
        (outcome,) = running.run([part])
        outcomes.append(outcome)
        if outcome.is_right:
            full.note(outcome)
    return outcomes


def _is_fresh() -> bool:
    commits, part = full.age()
    if commits >= full.WARNS_AT_COMMITS:
        print(f"make full: '{part}' was last played {commits} commits ago; type make full")
    return commits < full.FAILS_AT_COMMITS or os.environ.get("CI") != "true"


if __name__ == "__main__":
    sys.exit(main())
