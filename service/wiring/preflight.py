"""What must be there before the first record is read. All problems are told at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.adapters.kafka_preflight import cluster_of, kafka_problems
from service.core.errors import BatchAbortedError, ClaimsUnavailableError, PreflightError

if TYPE_CHECKING:
    from service.adapters.kafka_source import KafkaSource
    from service.adapters.redis_claims import RedisClaims
    from service.wiring.parts import Shared

CLAIMS_REST_S = 0.2


def check(shared: Shared, source: KafkaSource, claims: RedisClaims | None) -> list[str]:
    """Return remarks; raise PreflightError with one sentence for each problem."""
    problems = kafka_problems(shared.settings, source.list_topics)
    remarks: list[str] = []
    if claims is not None:
        claims.cluster_id = cluster_of(source.list_topics)
        found, remarks = _claims(shared, claims)
        problems += [f"HAPAX_DEDUP__REDIS_URL: {problem}" for problem in found]
    if problems:
        raise PreflightError(problems)
    if claims is not None and claims.fresh and _has_worked(source):
        shared.events.claims_emptied()
    return remarks


def _has_worked(source: KafkaSource) -> bool:
    """Whether the group has offsets: then there were claims, and the store has lost them.

    An offset that hangs in a transaction of our predecessor cannot be told yet; it counts as none.
    """
    try:
        return source.group_knows()
    except BatchAbortedError:
        return False


def _claims(shared: Shared, claims: RedisClaims) -> tuple[list[str], list[str]]:
    """Return the claim store's problems and warnings.

    Being away is what the outage policy is for, at the start as well; under ``pause`` the server
    that comes back is checked before the first record.
    """
    began_s, policy = shared.clock.monotonic(), shared.settings.dedup.on_outage
    away = False
    while True:
        try:
            found = claims.check()
        except ClaimsUnavailableError as error:
            away = True
            shared.events.claims_unavailable(str(error), policy)
            if policy == "pass" or shared.lifecycle.stopping:
                return [], []
            shared.lifecycle.rest(CLAIMS_REST_S)
        else:
            if away:
                shared.events.claims_recovered(shared.clock.monotonic() - began_s)
            return found.problems, found.warnings
