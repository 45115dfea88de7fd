"""Campaigns of the fault suite from the command line::

    python -m tests.fault list
    python -m tests.fault run ci --seed 1 --folder build/proof

``run`` leaves with 1 when the run is not as expected: clean, or for a control not clean.
"""

import argparse
import sys
from dataclasses import fields, replace
from pathlib import Path

import msgspec

from tests.fault.campaign import run
from tests.fault.plan import CALLS
from tests.fault.plans import PLANS, Wish
from tests.fault.results import write_run
from tests.fault.striking.strikes import CATALOGUE
from tests.kit.turn import Box, turn


def main() -> int:
    wanted = _arguments()
    if wanted.command == "list":
        return _list(as_json=wanted.json)
    box = Box.of(wanted)
    said = {each.name: getattr(wanted, each.name) for each in fields(Wish) if each.name != "box"}
    plan = PLANS[wanted.plan](Wish(**said, box=box))
    if wanted.rate:
        plan = replace(plan, rate=wanted.rate)
    found = run(plan)
    found.shared = wanted.shared
    path = write_run(found, wanted.folder)
    wrong = f"NOT AS EXPECTED: {'; '.join(found.problems)}"
    sys.stdout.write(f"{path}: {wrong if found.problems else 'as expected'}\n")
    return 0 if box.close() and found.as_expected else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fault", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list").add_argument("--json", action="store_true")
    one = commands.add_parser("run")
    one.add_argument("plan", choices=PLANS)
    one.add_argument("--seed", type=int, default=1)
    one.add_argument("--seconds", type=float, default=0.0, help="0: as the plan says")
    one.add_argument("--membership", default="static", choices=("static", "dynamic", "kip848"))
    one.add_argument("--engine", default="worker", choices=("worker", "spark", "mixed"))
    one.add_argument(
        "--calls",
        default="",
        choices=[name for name in CALLS if name],
        help="the form of the transform, with many calls in flight; else a plain function",
    )
    one.add_argument("--factor", type=float, default=0.4, help="1: faults every 5 to 15 s")
    one.add_argument("--only", default="", help="rows, or parts of names of faults, with commas")
    one.add_argument("--faults", type=int, default=0, help="so many at most; 0: as the plan says")
    one.add_argument("--records", type=int, default=0, help="at least so many are written")
    one.add_argument(
        "--each-row", action="store_true", help="one fault of each row, which one by the turn"
    )
    one.add_argument("--share", type=int, default=1, help="of the rows, one in so many, by turn")
    one.add_argument("--turn", type=int, default=turn(), help="as of the commit, or TURN")
    Box.arguments(one)
    one.add_argument("--rate", type=int, default=0, help="records a second; 0: as the plan says")
    one.add_argument(
        "--shared",
        action="store_true",
        help="the machine has other work meanwhile: the report leaves the times of this run out",
    )
    one.add_argument("--folder", type=Path, default=Path("build/proof"))
    wanted = parser.parse_args()
    if wanted.command == "run" and wanted.each_row and wanted.seconds:
        parser.error("--each-row ends with its last fault, or after --minutes")
    if wanted.command == "run" and wanted.minutes and not wanted.each_row:
        parser.error("--minutes is for --each-row: other plans have --seconds")
    return wanted


def _list(*, as_json: bool) -> int:
    rows = [
        {
            "rows": list(fault.rows),
            "fault": fault.name,
            "whom": fault.whom,
            "promise": fault.promise,
        }
        for fault in CATALOGUE
    ]
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(rows), indent=1).decode() + "\n")
        return 0
    for fault in CATALOGUE:
        sys.stdout.write(
            f"{'/'.join(fault.rows):6} {fault.whom:7} {fault.promise:11} {fault.name}\n"
        )
    sys.stdout.write(f"{len(CATALOGUE)} faults\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
