"""Examines everything once, and lets the checks judge it."""

from __future__ import annotations

import resource
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from functools import partial
from importlib import metadata
from multiprocessing import get_context
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from hapax.cluster.cluster_state import ClusterState, ProcessState
from hapax.kafka.admin.cluster import ClusterLook
from hapax.kafka.admin.topics import output_topics, target_settings
from hapax.kafka.produce.target import target_names
from hapax.kafka.properties import library_version
from hapax.operations.doctor import brokers, connections, neighbours, positions
from hapax.operations.doctor.acls import kafka_rights, state_topics, target_rights
from hapax.operations.doctor.check import Check, CheckContext, Finding, Verdict, ok, unknown
from hapax.wiring.builders import claim_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hapax.cluster.cluster_state import Right
    from hapax.core.ports import StoreHealth
    from hapax.operations.doctor.check import CheckResult
    from hapax.settings import Settings

_MODULES = (connections, brokers, positions, neighbours)
CHECKS = tuple(one for each in _MODULES for one in vars(each).values() if isinstance(one, Check))

STORE_TIMEOUT_S = 2.0
_LIBRARIES = ("hapax-kafka", "confluent-kafka", "redis", "msgspec", "pydantic", "pyspark")
_JUDGED: Final = {
    "": {"none", "input", "outputs", "each"},
    "input": {"none", "input", "each"},
    "outputs": {"outputs", "each"},
}
"""By side of the context, which checks judge it."""
TRIES = 2


class Examination(msgspec.Struct, frozen=True):
    """What was found; ``target``: on the cluster of the outputs, where that is another one."""

    context: CheckContext
    findings: tuple[Finding, ...]
    target: CheckContext | None = None


def examine(settings: Settings) -> Examination:
    """Examine everything once, for about ten seconds at most, and judge it.

    Nothing is joined, consumed or produced; in Redis one key is written that is gone a second
    later. Raises ConfigurationError for settings that the clients do not take.
    """
    with ThreadPoolExecutor(2) as pool:
        store = pool.submit(_look_at_claims, settings)
        other = pool.submit(_target_context, settings) if settings.elsewhere else None
        state = state_topics(settings)
        kafka = _look(settings, kafka_rights(settings, state=state), settings.app, state)
        context = CheckContext(settings, kafka, store.result(), look_at_process(), state=state)
        target = None if other is None else other.result()._replace(source=context)
    findings = [*judge(context), *(() if target is None else judge(target))]
    return Examination(context, tuple(findings), target)


def judge(context: CheckContext, checks: Sequence[Check] = CHECKS) -> Iterable[Finding]:
    for check in checks:
        if check.at not in _JUDGED[context.side]:
            continue
        two = context.side and check.at != "none"
        cluster = context.settings.kafka.bootstrap_servers if two else ""
        for each in _results(check, context):
            yield Finding(check.name, each.verdict, each.saw, each.fix, check.now, cluster)


def refused(problems: Iterable[str]) -> list[Finding]:
    """Return the findings where the settings themselves cannot work, one for each problem."""
    fix = "fix the environment; hapax config reference lists the settings"
    return [Finding("settings", Verdict.FAIL, problem, fix, now=True) for problem in problems]


def look_at_process() -> ProcessState:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ProcessState(
        python=sys.version_info[:3],
        librdkafka=library_version(),
        libraries={name: version for name in _LIBRARIES if (version := _version(name))},
        files_max=None if most == resource.RLIM_INFINITY else most,
    )


def _results(check: Check, context: CheckContext) -> list[CheckResult]:
    kafka, store = context.kafka, context.claims
    if check.needs == "brokers" and kafka.problem is not None:
        return [unknown(f"no broker to query: {kafka.problem}")]
    if check.needs == "claims" and (store is None or store.problem is not None):
        return [] if store is None else [unknown(f"{store.name} does not answer")]
    try:
        return list(check.judge(context)) or ([ok(check.sound)] if check.sound else [])
    except Exception as error:  # noqa: BLE001 - one check that fails must not hide the others
        return [unknown(f"the check itself failed ({type(error).__name__}: {error}); report it")]


def _target_context(settings: Settings) -> CheckContext:
    """Return the context on the cluster of the outputs, as yet without that of the input."""
    own = target_settings(settings)
    lane = target_names(settings.app, (settings.input.topics[0], 0))
    kafka = _look(own, target_rights(settings), lane.group)
    return CheckContext(own, kafka, None, look_at_process())


def _look(
    settings: Settings, rights: Iterable[Right], group: str, state: tuple[str, ...] = ()
) -> ClusterState:
    needed = (one for one in rights if one.resource == "TRANSACTIONAL_ID" and not one.optional)
    ids, ages_of = tuple(map(neighbours.tried_id, needed)), partial(positions.ages_ms, settings)
    outputs = (*output_topics(settings), *state)
    look = ClusterLook(settings, outputs, ids, group, ages_of).state
    try:
        return run_in_subprocess(look)
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


# -- Questions that may cost the process that asks them ----------------------------------------

Answer = TypeVar("Answer")


class CrashedError(Exception):
    """Each process that was to answer has died."""


def run_in_subprocess(look: Callable[[], Answer]) -> Answer:
    """Return what ``look`` finds in a process of its own; if that dies, in another one.

    The client's admin calls end their process when a broker dies while they wait (``Assertion
    `eonce->refcnt > 0' failed``; librdkafka #3663, #4605). ``look`` and its answer are pickled, so
    is what it raises. Raises CrashedError after two deaths. Starting a process takes 0.3 s.
    """
    for _try in range(TRIES):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            try:
                return pool.submit(look).result()
            except BrokenProcessPool:
                continue
    raise CrashedError(f"the Kafka client has crashed {TRIES} times, as it may while brokers die")
