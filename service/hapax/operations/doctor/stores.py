"""Checks of the claim store, of the schema registry, and of what keeps state."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hapax.core.errors import HapaxError
from hapax.core.formats import WITH_REGISTRY
from hapax.operations.doctor.check import (
    DAY_MS,
    HOUR_MS,
    CheckResult,
    Verdict,
    check,
    fail,
    number,
    ok,
    set_topic,
    unknown,
    warn,
)
from hapax.processing.state import AGAIN, changelog_problem, unlike
from hapax.schemas.codec import Encoder, check_output
from hapax.schemas.lookup import Lookup
from hapax.schemas.registry import Registry, UnknownSchemaError
from hapax.settings.value_types import duration_text, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.core.claim_store import StoreHealth
    from hapax.operations.doctor.check import Check, CheckContext

SKEW_MAX_MS: Final = 2000
FULL, NEARLY_FULL = 0.95, 0.80
ADDRESS: Final = "HAPAX_DEDUP__REDIS_URL"


def _store_of(context: CheckContext) -> StoreHealth:
    if context.claims is None:
        raise ValueError("no claim store is configured")
    return context.claims


def _by_store(name: str, *, now: bool = False) -> Check:
    """Return the check of what a store itself makes of one aspect; silent where it has none."""

    def judge(context: CheckContext) -> Iterator[CheckResult]:
        judgements = _store_of(context).judgements
        for verdict, saw, fix in judgements.get(name.removeprefix("claim-"), ()):
            yield CheckResult(Verdict(verdict), saw, fix)

    return check(name, needs="claims", now=now)(judge)


@check("claim-store", needs="claims or nothing", now=True)
def _store(context: CheckContext) -> Iterator[CheckResult]:
    if context.claims is None:
        yield ok("HAPAX_DEDUP__REDIS_URL is unset: events that were sent twice are not detected")
    elif context.claims.problem is not None:
        yield fail(
            f"{ADDRESS}: {context.claims.problem}",
            f"start {context.claims.name}, or fix {ADDRESS}; until then HAPAX_DEDUP__ON_OUTAGE="
            f"{context.settings.dedup.on_outage} decides",
        )
    else:
        yield ok(f"{context.claims.name} answers at {context.claims.place}")


_version = _by_store("claim-version")
_permissions = _by_store("claim-permissions", now=True)
_role = _by_store("claim-role", now=True)


@check("claims-present", needs="claims", now=True)
def _present(context: CheckContext) -> Iterator[CheckResult]:
    store = _store_of(context)
    worked = [at for name in context.inputs for at, log in context.logs(name) if log.committed]
    if store.claimed is None:
        yield unknown("the claims of this app cannot be read")
    elif not store.claimed and worked:
        yield warn(
            f"the group has committed offsets, but there are no claims: {store.name} was "
            "emptied, or is new; copies of earlier events pass",
            "hapax claims rebuild restores them from the outputs",
        )
    else:
        yield ok("claims of this app exist" if store.claimed else "no claim was made yet")


@check("claim-clock", needs="claims")
def _clock(context: CheckContext) -> Iterator[CheckResult]:
    store = _store_of(context)
    if (skew := store.skew_ms) is None:
        yield unknown(f"{store.name} does not return its time")
    elif abs(skew) > SKEW_MAX_MS:
        yield warn(
            f"the clock of {store.name} is {skew} ms ahead of the local clock",
            "synchronize the clocks of all machines by NTP",
        )
    else:
        yield ok(f"the clock of {store.name} agrees with the local clock")


_eviction = _by_store("claim-eviction")
_persistence = _by_store("claim-persistence")
_replicas = _by_store("claim-replicas")


@check("claim-memory", needs="claims")
def _memory(context: CheckContext) -> Iterator[CheckResult]:
    store = _store_of(context)
    used, allowed = store.used_bytes, store.limit_bytes
    if used is None or allowed is None:
        yield unknown(f"{store.name} does not return its memory use")
        return
    limit = allowed or store.machine_bytes or 0
    # Of all claims that live at once, from the input of the last hour.
    last_hour = sum(
        max(0, log.offsets.high_watermark - log.since[HOUR_MS])
        for name in context.inputs
        for _, log in context.logs(name)
        if log.offsets is not None and HOUR_MS in log.since
    )
    needed = int(last_hour * context.settings.dedup.ttl_ms / HOUR_MS * store.bytes_per_id)
    fix = (
        f"raise {store.limit_name}, or shorten HAPAX_DEDUP__TTL: a full {store.name} takes no "
        "claims"
    )
    if allowed and used > NEARLY_FULL * allowed:
        saw = f"{_size(used)} of {store.limit_name} {_size(allowed)} are in use"
        yield fail(saw, fix) if used > FULL * allowed else warn(saw, fix)
    elif limit and needed > limit:
        yield warn(
            f"at the rate of the last hour claims need about {_size(needed)}, {store.name} has "
            f"{_size(limit)}",
            fix,
        )
    else:
        yield ok(
            f"{_size(used)} in use, about {_size(needed)} needed at the rate of the last hour, "
            f"limit {_size(allowed) if allowed else 'none'}"
        )


def _size(count: int) -> str:
    for unit in (1 << 30, 1 << 20, 1 << 10):
        if count >= unit:
            return size_text(count // unit * unit)
    return f"{count}B"


@check("schema-registry", needs="process", now=True)
def _registry(context: CheckContext) -> Iterator[CheckResult]:
    formats, settings = context.settings.formats, context.settings
    if not formats.needs_registry:
        yield ok("no format needs a schema registry")
        return
    registry = Registry(formats.registry)
    try:
        registry.compatibility()
        check_output(formats, Lookup(formats.registry))
        if formats.output not in WITH_REGISTRY:
            yield ok("the schema registry answers")
            return
        key = Encoder(formats, Lookup(formats.registry)).key(settings.output.topic)
        subject = key.partition(":")[2].partition("\n")[0]
        level = registry.compatibility(subject)
    except (HapaxError, UnknownSchemaError) as error:
        yield fail(str(error), "see docs/schemas.md; a start waits for a registry, or ends with it")
        return
    if level == "NONE":
        yield warn(
            f"the subject {subject} takes any new version (compatibility NONE)",
            f"set the compatibility of {subject} to BACKWARD or stricter, or readers of the output"
            " meet data that they cannot read",
        )
    else:
        yield ok(f"the schema registry has {subject}, compatibility {level}")


@check("state-changelog", needs="process", now=True, sound="the transform keeps no state")
def _changelog(context: CheckContext) -> Iterator[CheckResult]:
    if not context.state:
        return
    (name,), inputs = context.state, list(context.inputs.values())
    if context.kafka.problem is not None or not inputs:
        yield unknown(f"topic {name}: {context.kafka.problem or 'the input is not known'}")
        return
    if problem := unlike({at: len(one.partitions) for at, one in context.inputs.items()}):
        yield fail(problem, "create them with the same number of partitions")
        return
    topic = context.kafka.topics.get(name)
    count, told = (0, {}) if topic is None else (len(topic.partitions), topic.settings)
    policy, kept_ms = told.get("cleanup.policy"), number(told.get("delete.retention.ms"))
    if found := changelog_problem(name, count, len(inputs[0].partitions), policy):
        yield fail(*found)
    elif kept_ms is None:
        yield unknown(f"settings of topic {name}: the brokers do not report them")
    elif kept_ms < HOUR_MS:
        yield warn(
            f"{name}: delete.retention.ms={kept_ms}: an instance that is away for more than half of"
            " it reads the whole changelog again",
            set_topic(name, f"delete.retention.ms={DAY_MS}"),
        )
    elif cut := [at for at, log in context.logs(name) if log.offsets and log.offsets.log_start]:
        saw = f"{', '.join(cut)}: the first records were deleted, and with them what they kept"
        yield warn(saw, f"if state was in use by then, {AGAIN}")
    elif lag_ms := number(told.get("min.compaction.lag.ms")):
        yield warn(
            f"{name}: min.compaction.lag.ms={lag_ms}: an instance without its folder reads each"
            f" change of the last {duration_text(lag_ms)}",
            set_topic(name, "min.compaction.lag.ms=0"),
        )
    else:
        away = duration_text(kept_ms // 2)
        yield ok(f"{name}: compacted; an instance keeps its state when it is away for up to {away}")


@check("state-disk", needs="process", sound="the transform keeps no state")
def _disk(context: CheckContext) -> Iterator[CheckResult]:
    folder, most = context.settings.state.dir, context.settings.state.size_max
    if not context.state:
        return
    if folder is None:
        fix = "set it to a folder of this instance, on a volume that its restarts find again"
        yield warn("HAPAX_STATE__DIR is unset: each start reads the whole changelog", fix)
        return
    try:
        free, written = shutil.disk_usage(folder).free, Path(folder, "lmdb", "data.mdb")
        used = written.stat().st_size if written.exists() else 0
    except OSError as error:
        yield unknown(f"HAPAX_STATE__DIR={folder}: {error}; a start makes it")
        return
    has = f"HAPAX_STATE__DIR={folder} has {_size(used)} of state and {_size(free)} free"
    if used + free < most:
        yield warn(
            f"{has}, less than HAPAX_STATE__SIZE_MAX={_size(most)}: a full disk ends the process",
            "give the volume more room, or lower HAPAX_STATE__SIZE_MAX",
        )
    else:
        yield ok(f"{has}; HAPAX_STATE__SIZE_MAX={_size(most)}")
