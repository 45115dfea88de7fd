"""Examines everything once, and lets the checks judge it; an archive of that for support.

Settings are shown there as everywhere else. On top of that every secret that these settings hold,
or the environment, is struck out of every text, wherever it came from.
"""

from __future__ import annotations

import errno
import io
import json
import os
import resource
import tarfile
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from functools import partial
from http import HTTPStatus
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from hapax import __version__
from hapax.cluster.cluster_state import ClusterState, ProcessState
from hapax.cluster.partition_offsets import PartitionOffsets, position
from hapax.core.errors import ConfigurationError, HapaxError
from hapax.kafka.admin.cluster import ClusterLook
from hapax.kafka.admin.topics import output_topics, target_settings
from hapax.kafka.connection import addressed
from hapax.kafka.produce.target import target_names
from hapax.kafka.properties import library_version
from hapax.operations.doctor import brokers, connections, neighbours, positions
from hapax.operations.doctor.acls import kafka_rights, state_topics, target_rights
from hapax.operations.doctor.check import Check, CheckContext, Finding, Verdict, counts, ok, unknown
from hapax.operations.local_process import LocalProcess
from hapax.settings.secrets import Strike, secrets_around, secrets_of
from hapax.wiring.builders import claim_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hapax.cluster.cluster_state import Log, Right
    from hapax.core.ports import StoreHealth
    from hapax.core.records import TopicPartition
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
            fix = addressed(each.fix, context.settings)
            yield Finding(check.name, each.verdict, each.saw, fix, check.now, cluster)


def refused(problems: Iterable[str]) -> list[Finding]:
    """Return the findings where the settings themselves cannot work, one for each problem."""
    fix = "fix the environment; hapax config reference lists the settings"
    return [Finding("settings", Verdict.FAIL, problem, fix, now=True) for problem in problems]


def look_at_process() -> ProcessState:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ProcessState(
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
    except brokers.NotReportedError as error:
        return [unknown(str(error))]
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


# -- An archive for support: what was found out, without a secret ----------------------------------


STATUS_TIMEOUT_S = 1.0
FOLDER = "hapax-doctor"
SECRET_LENGTH_MIN = 2
"""An archive is sent to others: better a text with gaps than a short password in it."""


def write_bundle(
    path: Path,
    environ: Mapping[str, str],
    findings: Iterable[Finding],
    context: CheckContext | None,
    target: CheckContext | None = None,
) -> None:
    """Write the archive (tar, gzip), readable for its owner alone.

    ``context`` is None where the settings could not be read, ``target`` is that on another cluster
    of the outputs. Raises ConfigurationError when the file cannot be written.
    """
    files = _files(tuple(findings), context)
    if target is not None:
        files["facts-outputs.json"] = _facts(target)
        files["offsets-outputs.json"] = _all_offsets(target)
    held = () if context is None else secrets_of(context.settings)
    strike = Strike({*secrets_around(environ), *held}, SECRET_LENGTH_MIN)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            text = strike(json.dumps(strike.value(content), indent=2)).encode()
            entry = tarfile.TarInfo(f"{FOLDER}/{name}")
            entry.size, entry.mode, entry.mtime = len(text), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(text))
    try:
        _replace(path, packed.getvalue())
    except OSError as error:
        problem = f"--bundle {path}: the file cannot be written: {error.strerror or error}"
        raise ConfigurationError(problem) from None


def _replace(path: Path, content: bytes) -> None:
    """Put a new file, readable for its owner alone, in the place of any other.

    A link is replaced and not followed, a file keeps neither its mode nor its other names, and a
    write that fails leaves what was there. Raises OSError.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no regular file")
    number, name = tempfile.mkstemp(prefix=".hapax-doctor-", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _files(findings: tuple[Finding, ...], context: CheckContext | None) -> dict[str, Any]:
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    report = {
        "version": __version__,
        "made": made,
        "counts": counts(findings),
        "findings": msgspec.to_builtins(findings),
    }
    if context is None:
        return {"doctor.json": report}
    files: dict[str, Any] = {
        "doctor.json": report,
        "settings.json": context.settings.effective(),
        "facts.json": _facts(context),
        "offsets.json": _all_offsets(context),
        "versions.json": dict(context.process.libraries),
    }
    with suppress(HapaxError):
        code, status = LocalProcess(context.settings).ask("GET", "/status.json", STATUS_TIMEOUT_S)
        if code == HTTPStatus.OK:
            files["status.json"] = status
    return files


def _facts(context: CheckContext) -> Any:
    return msgspec.to_builtins(
        {
            "kafka": msgspec.structs.replace(context.kafka, logs={}),
            "claims": context.claims,
            "process": context.process,
        },
        str_keys=True,
    )


def _all_offsets(context: CheckContext) -> dict[str, Any]:
    return {
        f"{topic}/{number}": _offsets(context, (topic, number), log)
        for (topic, number), log in sorted(context.kafka.logs.items())
    }


def _offsets(context: CheckContext, where: TopicPartition, log: Log) -> dict[str, Any]:
    """Return one partition as ``hapax offsets --json`` spells it, and what only this look has."""
    told: dict[str, Any] = msgspec.to_builtins(log, str_keys=True)
    told.pop("offsets")
    if log.offsets is None:
        return told
    offsets = PartitionOffsets(
        topic=where[0],
        partition=where[1],
        log=log.offsets,
        committed=log.committed,
        position=position(log.committed, log.offsets, context.settings.input.start),
    )
    read = where[0] in context.settings.input.topics
    return told | (offsets.figures() if read else offsets.log_figures())
