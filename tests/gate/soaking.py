"""``make soak``: tests on real servers, again and again beside a busy core, until admitted.

A run plays all that is asked for once. Each pass counts for its test in ``admitted.tsv``; a failure
sets its count back to nothing, for what made it fail is a cause that has to be found.
"""

import re
import subprocess
import time
from collections.abc import Iterable

from tests.gate import admission, parts, running
from tests.gate.admission import Admitted
from tests.gate.parts import PYTHON, Part

_BURNER = "while True: pass"
_VERDICT = re.compile(r"^(PASSED|FAILED|ERROR) (tests/\S+?::.+?)(?: - .*)?$", re.MULTILINE)


def soak(wanted: list[str], *, runs: int, minutes: float) -> int:
    """Play tests until each has so many runs or the time is over; return how many failed."""
    ends, failed = time.monotonic() + 60 * minutes, 0
    burner = subprocess.Popen((PYTHON, "-c", _BURNER))
    try:
        while time.monotonic() < ends:
            short = [test for test in wanted if _of(test).runs < runs]
            if not short:
                break
            failed += _once(short)
    finally:
        burner.kill()
        burner.wait()
    return failed


def _once(tests: list[str]) -> int:
    command = (*parts.PYTEST, "-rA", "-n", "4", "--dist", "loadfile", *tests)
    (outcome,) = running.run([Part("soak", command)])
    text = running.tail(outcome.part, 4_000_000).decode(errors="replace")
    verdicts = {test: verdict for verdict, test in _VERDICT.findall(text)}
    if not verdicts:
        raise SystemExit(f"make soak: no test was played\n{text[-2000:]}")
    return _note(tests, verdicts)


def _note(tests: Iterable[str], verdicts: dict[str, str]) -> int:
    """Count a run of each test; one of several parameters has passed when all of them have."""
    lines, failed = dict(admission.admitted()), 0
    for test in tests:
        own = [
            verdict
            for name, verdict in verdicts.items()
            if name == test or name.startswith(f"{test}[")
        ]
        if not own:
            continue
        line = _of(test)
        if set(own) == {"PASSED"}:
            lines[test] = line._replace(runs=line.runs + 1, commit=parts.commit())
        else:
            failed += 1
            lines[test] = Admitted(0, line.failures + 1, parts.commit(), test)
    admission.write(lines)
    return failed


def _of(test: str) -> Admitted:
    return admission.admitted().get(test, Admitted(0, 0, "-", test))
