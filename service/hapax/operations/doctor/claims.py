"""Checks of the claim store: the way to it, and whether it takes claims."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from hapax.operations.doctor.check import Check, fail, good, untold, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.core.cluster_state import ClaimStore
    from hapax.operations.doctor.check import Case, Said

VERSION_MIN: Final = (6, 2)
SKEW_MAX_MS: Final = 2000
ADDRESS: Final = "HAPAX_DEDUP__REDIS_URL"


def _store(case: Case) -> Iterator[Said]:
    if case.claims is None:
        yield good("HAPAX_DEDUP__REDIS_URL is unset: events that were sent twice are not noticed")
    elif case.claims.problem is not None:
        yield fail(
            f"{ADDRESS}: {case.claims.problem}",
            f"start Redis, or mend {ADDRESS}; until then HAPAX_DEDUP__ON_OUTAGE="
            f"{case.settings.dedup.on_outage} decides",
        )
    else:
        yield good(f"Redis answers at {case.claims.place}")


def _version(case: Case) -> Iterator[Said]:
    found = store_of(case).info.get("redis_version")
    if found is None:
        yield untold("Redis does not let us read INFO")
    elif tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < VERSION_MIN:
        yield fail(f"Redis {found}", "upgrade Redis to 6.2 or later")
    else:
        yield good(f"Redis {found}")


def _permissions(case: Case) -> Iterator[Said]:
    refused = store_of(case).refused
    if is_replica(store_of(case)):
        yield untold("the server is a replica, which refuses every write")
        return
    by_reason: dict[str, list[str]] = {}
    for each in refused:
        command, _, reason = each.partition(": ")
        by_reason.setdefault(reason, []).append(command)
    for reason, commands in by_reason.items():
        yield fail(
            f"claims need {', '.join(commands)}, and cannot have it: {reason}",
            "grant it; hapax doctor --acls prints the line for the ACL file",
        )
    if not refused:
        yield good("every command that claims need was tried and works")


def _role(case: Case) -> Iterator[Said]:
    store = store_of(case)
    if "role" not in store.info:
        yield untold("Redis does not let us read INFO")
    elif is_replica(store):
        yield fail(
            f"Redis at {store.place} is a replica: it refuses claims",
            f"let {ADDRESS} lead to the primary",
        )
    else:
        yield good("Redis is the primary")


def _present(case: Case) -> Iterator[Said]:
    store = store_of(case)
    worked = [place for name in case.inputs for place, log in case.logs(name) if log.committed]
    if store.claimed is None:
        yield untold("we cannot read our claims")
    elif not store.claimed and worked:
        yield warn(
            "the group has committed offsets, but there are no claims: Redis was emptied, or is "
            "new; copies of earlier events pass",
            "hapax claims rebuild makes them again from the outputs",
        )
    else:
        yield good("claims of this app are there" if store.claimed else "nothing was claimed yet")


def _clock(case: Case) -> Iterator[Said]:
    skew = store_of(case).skew_ms
    if skew is None:
        yield untold("Redis does not tell its time")
    elif abs(skew) > SKEW_MAX_MS:
        yield warn(
            f"the clock of Redis is {skew} ms ahead of ours",
            "let all machines keep their time by NTP",
        )
    else:
        yield good("the clock of Redis agrees with ours")


def store_of(case: Case) -> ClaimStore:
    """Return what Redis told; only called where there is one."""
    if case.claims is None:
        raise ValueError("there is no claim store to look at")
    return case.claims


def is_replica(store: ClaimStore) -> bool:
    """Whether it follows another server."""
    return store.info.get("role") == "slave"


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
        _version,
    ),
    Check(
        "claim-permissions",
        "every command that claims need, by trying it on a key of its own",
        "FAIL: one is refused, for rights or for memory.",
        "claims",
        _permissions,
        now=True,
    ),
    Check(
        "claim-role",
        "whether Redis is the primary",
        "FAIL: it is a replica.",
        "claims",
        _role,
        now=True,
    ),
    Check(
        "claims-present",
        "whether the claims of this app are there",
        "WARN: there are none, although the group has committed offsets.",
        "claims",
        _present,
        now=True,
    ),
    Check(
        "claim-clock",
        "the clock of Redis against ours",
        "WARN: two seconds apart.",
        "claims",
        _clock,
    ),
)
