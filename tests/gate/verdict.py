"""The last lines of a run: what ran, what was not played, what failed and how to play it again."""

import os
import re
import shlex
import shutil
import subprocess
from importlib.util import find_spec

from tests.gate import admission
from tests.gate.parts import PYTEST, ROOT
from tests.gate.rotating import ON_TRIAL
from tests.gate.running import Outcome, tail
from tests.kit import redis_with_tls

_FAILED = re.compile(r"^failed: (\S.*) \((?:setup|call|teardown|None|collect)\)$", re.MULTILINE)
AGAIN = ".venv/bin/pytest"
_LOG_BYTES = 400_000
_OUTPUT_LINES, _LINE_LENGTH = 40, 300
_REASON_LINES, _REASONS_MAX, _NAMES_MAX = 9, 8, 4
_ALONE_MAX, _ALONE_RUNS, _ALONE_LIMIT_S = 2, 3, 60.0


def tell(title: str, outcomes: list[Outcome], wall_s: float) -> bool:
    failed = [one for one in outcomes if not one.is_right]
    for one in failed:
        _tell_failure(one)
    wrong = [one for one in failed if one.part.name not in ON_TRIAL]
    for one in failed:
        if one not in wrong:
            print(f"on trial: {one.part.name} failed, which is not counted yet (CONTRIBUTING.md)")
    counts = {
        what: sum(one.counts.get(what, 0) for one in outcomes)
        for what in ("passed", "failed", "skipped")
    }
    if any(counts.values()):
        print("tests: " + ", ".join(f"{number} {what}" for what, number in counts.items()))
    cpu_s = sum(one.cpu_s for one in outcomes)
    print(
        f"{title}: {'FAILED' if wrong else 'all right'} in {wall_s:.0f} s, {cpu_s:.0f} s of "
        f"processor time; {', '.join(_short(one) for one in outcomes)}; {not_played()}"
    )
    return not wrong


def not_played() -> str:
    """Say what this machine cannot play, and how many tests are still on trial."""
    lacking = [] if find_spec("hapax_fast") else ["the native path (no C compiler at the set-up)"]
    lacking += [] if redis_with_tls.is_there() else ["what needs a Redis with TLS"]
    missing = [name for name in ("helm", "kubectl", "chromium") if shutil.which(name) is None]
    lacking += [f"what needs {', '.join(missing)}"] if missing else []
    lines = [f"not played here: {'; '.join(lacking) or 'nothing'}"]
    trial = admission.on_trial()
    if trial:
        lines.append(
            f"{len(trial)} of {len(admission.admitted())} admitted tests have fewer than "
            f"{admission.RUNS_MIN} trial runs"
        )
    return "; ".join(lines)


def _tell_failure(one: Outcome) -> None:
    print(f"\n== failed: {one.part.name} (exit {one.exit_code}), whole log: {one.part.log}")
    if one.over_budget:
        print(
            f"   over its budget: {one.cpu_s:.0f} s of processor time, {one.budget_s:.0f} s are"
            " allowed; make it cheaper, or move tests to a layer that rotates"
        )
    if one.exit_code == 0:
        return
    text = tail(one.part, _LOG_BYTES).decode(errors="replace")
    reasons = _reasons(text)
    if os.environ.get("CI") == "true":
        _tell_alone(list(reasons))
    if not reasons:
        _tell_lines(text.splitlines()[-_OUTPUT_LINES:])
        print(f"   again: {shlex.join(one.part.command)}")
    for reason in list(dict.fromkeys(reasons.values()))[:_REASONS_MAX]:
        _tell_lines(reason.splitlines())
        names = [name for name, its in reasons.items() if its == reason]
        for name in names[:_NAMES_MAX]:
            print(f"   again: {AGAIN} {shlex.quote(name)}")
        if names[_NAMES_MAX:]:
            print(f"   and {len(names) - _NAMES_MAX} more for the same reason")


def _tell_lines(lines: list[str]) -> None:
    for line in lines:
        print(f"   {line[:_LINE_LENGTH]}")


def _tell_alone(names: list[str]) -> None:
    """Say whether what failed in company fails alone: that is the first thing to know of it."""
    for name in names[:_ALONE_MAX]:
        command = (*PYTEST, name)
        fails = sum(_fails(command) for _ in range(_ALONE_RUNS))
        print(f"   alone: {name} failed {fails} of {_ALONE_RUNS} times")


def _fails(command: tuple[str, ...]) -> bool:
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, check=False, timeout=_ALONE_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def _reasons(text: str) -> dict[str, str]:
    """Return why each test failed, as ``tests/kit/failures.py`` has written it."""
    found: dict[str, str] = {}
    for match in _FAILED.finditer(text):
        lines = text[match.end() :].lstrip("\n").splitlines()[:_REASON_LINES]
        ends = [number for number, line in enumerate(lines) if _FAILED.match(line) or not line]
        found.setdefault(match[1], "\n".join(lines[: min(ends, default=len(lines))]))
    return found


def _short(one: Outcome) -> str:
    return f"{one.part.name} {one.counts.get('passed', '')}".strip()
