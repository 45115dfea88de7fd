"""Settings to steps 2 to 5, for brokers (``wiring``) and for pipelines in memory (``testing``)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hapax.engines.overlapping_calls import retrying
from hapax.processing.deduplicate import Claiming, ClaimOwners
from hapax.processing.exactly_once import Steps
from hapax.processing.identity import Identity
from hapax.processing.limits import DeadLetterRate
from hapax.processing.plan import BatchState, Destinations, Planner
from hapax.processing.retry_later import LaterTries
from hapax.processing.transform import SchemaWait

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.core.ports import AppliesAll, Claims, OwnerLookup
    from hapax.processing.answers import Around
    from hapax.processing.plan import OtherCluster
    from hapax.settings import Settings


def now_ms() -> int:
    return int(time.time() * 1000)


def steps(
    settings: Settings,
    claims: Claims | None,
    owners: OwnerLookup | None,
    transformer: AppliesAll,
    *,
    failed: tuple[int, int] = (0, 0),
    elsewhere: OtherCluster | None = None,
    state: BatchState | None = None,
    now_ms: Callable[[], int] = now_ms,
) -> Steps:
    """Return the steps of a pipeline.

    ``failed``: records and failures of the recent past. ``elsewhere``: where outputs go when that
    is another cluster. ``state``: what is kept by key.
    """
    rate, policy = dead_letter_rate(settings), retrying(settings)
    if failed[0]:
        rate.record_batch(*failed)
    dedup, out, retry, to = settings.dedup, settings.output, policy.topic, settings.dead_letter
    encoded, now = out.format != "bytes", out.timestamp == "now"
    inputs, claimed = settings.input.topics, claims is not None
    identity = Identity(dedup.id, inputs=inputs, retry=retry, claimed=claimed)
    asked = ClaimOwners(owners, identity, batch_max=settings.transaction.records_max)
    around: list[Around] = [] if retry is None else [LaterTries(policy, now_ms=now_ms)]
    if settings.formats.needs_registry:
        around.append(SchemaWait())
    names = (settings.app, out.topic, to.topic)
    return Steps(
        identity=identity,
        claiming=Claiming(claims, asked, pass_on_outage=dedup.on_outage == "pass"),
        transformer=transformer,
        planner=Planner(Destinations(*names, retry, elsewhere, encoded, now)),
        dead_letter_rate=rate,
        around=around,
        state=state or BatchState(),
    )


def dead_letter_rate(settings: Settings) -> DeadLetterRate:
    to = settings.dead_letter
    return DeadLetterRate(topic=to.topic, rate_max=to.rate_max, records_min=to.records_min)
