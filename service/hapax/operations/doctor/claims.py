"""Checks of the claim store: the way to it, and whether it takes claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.operations.doctor.check import Check, Said, fail, good, untold, warn
from hapax.operations.doctor.findings import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hapax.core.claim_store import StoreHealth
    from hapax.operations.doctor.check import Case

SKEW_MAX_MS: Final = 2000
ADDRESS: Final = "HAPAX_DEDUP__REDIS_URL"


def _store(case: Case) -> Iterator[Said]:
    if case.claims is None:
        yield good("HAPAX_DEDUP__REDIS_URL is unset: events that were sent twice are not detected")
    elif case.claims.problem is not None:
        yield fail(
            f"{ADDRESS}: {case.claims.problem}",
            f"start {case.claims.name}, or fix {ADDRESS}; until then HAPAX_DEDUP__ON_OUTAGE="
            f"{case.settings.dedup.on_outage} decides",
        )
    else:
        yield good(f"{case.claims.name} answers at {case.claims.place}")


def judged(aspect: str) -> Callable[[Case], Iterator[Said]]:
    """Return the check of what a store itself makes of one aspect; silent where it has none."""

    def judge(case: Case) -> Iterator[Said]:
        for verdict, saw, fix in store_of(case).judgements.get(aspect, ()):
            yield Said(Verdict(verdict), saw, fix)

    return judge


def _present(case: Case) -> Iterator[Said]:
    store = store_of(case)
    worked = [place for name in case.inputs for place, log in case.logs(name) if log.committed]
    if store.claimed is None:
        yield untold("the claims of this app cannot be read")
    elif not store.claimed and worked:
        yield warn(
            f"the group has committed offsets, but there are no claims: {store.name} was "
            "emptied, or is new; copies of earlier events pass",
            "hapax claims rebuild restores them from the outputs",
        )
    else:
        yield good("claims of this app exist" if store.claimed else "no claim was made yet")


def _clock(case: Case) -> Iterator[Said]:
    store = store_of(case)
    skew = store.skew_ms
    if skew is None:
        yield untold(f"{store.name} does not return its time")
    elif abs(skew) > SKEW_MAX_MS:
        yield warn(
            f"the clock of {store.name} is {skew} ms ahead of the local clock",
            "synchronize the clocks of all machines by NTP",
        )
    else:
        yield good(f"the clock of {store.name} agrees with the local clock")


def store_of(case: Case) -> StoreHealth:
    """Return what Redis told; only called where there is one."""
    if case.claims is None:
        raise ValueError("no claim store is configured")
    return case.claims


CHECKS: Final = (
    Check(
        "claim-store",
        "whether Redis answers: address, TLS, login",
        "FAIL: it does not.",
        "claims or nothing",
        _store,
        now=True,
    ),
    Check(
        "claim-version",
        "the version of Redis",
        "FAIL: older than 6.2.",
        "claims",
        judged("version"),
    ),
    Check(
        "claim-permissions",
        "every command that claims need, by trying it on a key of its own",
        "FAIL: one is refused, for rights or for memory.",
        "claims",
        judged("permissions"),
        now=True,
    ),
    Check(
        "claim-role",
        "whether Redis is the primary",
        "FAIL: it is a replica.",
        "claims",
        judged("role"),
        now=True,
    ),
    Check(
        "claims-present",
        "whether the claims of this app exist",
        "WARN: there are none, although the group has committed offsets.",
        "claims",
        _present,
        now=True,
    ),
    Check(
        "claim-clock",
        "the clock of Redis against the local clock",
        "WARN: two seconds apart.",
        "claims",
        _clock,
    ),
)
