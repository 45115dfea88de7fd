"""Looks at everything once, and lets the checks judge it."""

from __future__ import annotations

import resource
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING

import msgspec

from hapax.core.cluster_state import ClusterState, ProcessState
from hapax.kafka.admin.certificates import own_certificates, server_certificates
from hapax.kafka.admin.cluster import PAUSE_S, look_at_kafka
from hapax.kafka.admin.isolated import CrashedError, run_in_subprocess
from hapax.kafka.properties import library_version
from hapax.operations.doctor import (
    addresses,
    brokers,
    claims,
    encryption,
    group,
    positions,
    process,
    retention,
    retry,
    schemas,
    topic_settings,
    topics,
)
from hapax.operations.doctor.check import Case, declared, output_topics, unknown
from hapax.operations.doctor.findings import Finding, Verdict
from hapax.wiring.claims import claim_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hapax.core.claim_store import StoreHealth
    from hapax.operations.doctor.check import Check, CheckResult
    from hapax.settings import Settings

CHECKS = declared(
    process,
    addresses,
    encryption,
    brokers,
    topics,
    topic_settings,
    positions,
    retention,
    retry,
    group,
    claims,
    schemas,
)

STORE_TIMEOUT_S = 2.0
_LIBRARIES = ("hapax-kafka", "confluent-kafka", "redis", "msgspec", "pydantic", "pyspark")


class Examination(msgspec.Struct, frozen=True):
    """What was found out, and what it means."""

    case: Case
    findings: tuple[Finding, ...]


def examine(settings: Settings, *, pause_s: float = PAUSE_S) -> Examination:
    """Look at everything once, for about ten seconds at most, and judge it.

    ``pause_s`` lies between two looks at open transactions. Nothing is joined, consumed or
    produced; in Redis one key is written that is gone a second later. Raises ConfigurationError
    for settings that the clients do not take.
    """
    with ThreadPoolExecutor(3) as pool:
        kafka = pool.submit(_look_at_kafka, settings, pause_s)
        store = pool.submit(_look_at_claims, settings)
        shown = pool.submit(server_certificates, settings)
        certificates = (*own_certificates(settings), *shown.result())
        case = Case(settings, kafka.result(), store.result(), look_at_process(), certificates)
    return Examination(case, tuple(judge(case)))


def judge(case: Case, checks: Sequence[Check] = CHECKS) -> Iterable[Finding]:
    """Yield what the checks say, in their order."""
    for check in checks:
        for result in _results(check, case):
            yield Finding(check.name, result.verdict, result.saw, result.fix, check.now)


def refused(problems: Iterable[str]) -> list[Finding]:
    """Return the findings where the settings themselves cannot work, one for each problem."""
    fix = "fix the environment; hapax config reference lists the settings"
    return [Finding("settings", Verdict.FAIL, problem, fix, now=True) for problem in problems]


def look_at_process() -> ProcessState:
    """Return what is to be known of this process."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ProcessState(
        python=sys.version_info[:3],
        librdkafka=library_version(),
        libraries={name: version for name in _LIBRARIES if (version := _version(name))},
        files_max=None if most == resource.RLIM_INFINITY else most,
    )


def _results(check: Check, case: Case) -> list[CheckResult]:
    kafka, store = case.kafka, case.claims
    if check.needs == "brokers" and kafka.problem is not None:
        return [unknown(f"no broker to query: {kafka.problem}")]
    if check.needs == "claims" and (store is None or store.problem is not None):
        return [] if store is None else [unknown(f"{store.name} does not answer")]
    try:
        return list(check.judge(case))
    except Exception as error:  # noqa: BLE001 - one check that fails must not hide the others
        return [unknown(f"the check itself failed ({type(error).__name__}: {error}); report it")]


def _look_at_kafka(settings: Settings, pause_s: float) -> ClusterState:
    outputs = tuple(output_topics(settings))
    ids = () if settings.elsewhere else tuple(group.tried_ids(settings))
    ages_of = partial(positions.ages_ms, settings)
    try:
        return run_in_subprocess(partial(look_at_kafka, settings, outputs, ids, ages_of, pause_s))
    except CrashedError as error:
        return ClusterState(problem=f"{error}; run it again")


def _look_at_claims(settings: Settings) -> StoreHealth | None:
    store = claim_store(settings, timeout_s=STORE_TIMEOUT_S)
    if store is None:
        return None
    with closing(store):
        return store.health()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
