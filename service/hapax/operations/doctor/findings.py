"""What an examination says: one finding for each thing that was looked at."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable


class Verdict(StrEnum):
    """How good it is.

    PASS     as it should be
    WARN     works today; the saw and the fix say what it will cost
    FAIL     records are, or can be, lost, doubled or stuck
    UNTOLD   could not be looked at; ``saw`` says why
    """

    PASS = "PASS"  # noqa: S105 - a verdict, no secret
    WARN = "WARN"
    FAIL = "FAIL"
    UNTOLD = "UNTOLD"


class Finding(msgspec.Struct, frozen=True):
    """One verdict.

    check    name of the check; docs/doctor.md has a row for each
    verdict  see Verdict
    saw      what was looked at and found, one phrase
    fix      what to do, one sentence; empty where nothing is to be done
    now      whether the check speaks of this moment, and not of what can happen one day
    cluster  the bootstrap addresses of the cluster it speaks of, where there are two; else empty
    """

    check: str
    verdict: Verdict
    saw: str
    fix: str = ""
    now: bool = False
    cluster: str = ""


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings worst first; of one verdict those about this moment come first."""
    order = (Verdict.FAIL, Verdict.WARN, Verdict.UNTOLD, Verdict.PASS)
    return sorted(findings, key=lambda one: (order.index(one.verdict), not one.now))


def counts(findings: Iterable[Finding]) -> dict[str, int]:
    """Return how many findings have each verdict; all verdicts, best first."""
    seen = Counter(finding.verdict for finding in findings)
    return {verdict.value: seen[verdict] for verdict in Verdict}
