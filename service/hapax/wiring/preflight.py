"""What must be there before the first record is read. All problems are reported at once.

What nobody here can cure by waiting ends the process with exit code 3. Brokers or a claim store
that do not answer are waited for, as a running worker waits: a pod that starts in an outage is no
crash loop. Each round looks at both, so that neither outage hides the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hapax.core.errors import BatchAbortedError, ClaimsUnavailableError, PreflightError
from hapax.kafka.admin.preflight import KafkaPreflight

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.core.claim_store import ClaimStore
    from hapax.kafka.admin.preflight import BrokerAnswers
    from hapax.kafka.consume.source import KafkaSource
    from hapax.wiring.builders import Shared

REST_S = 0.2
GOOD_S = 2.0
"""How long brokers count as well while the claim store is waited for."""
SETTLE_S = 10.0
"""Brokers that come back may not know of all topics at first."""
BOUNDED_S = 10.0
"""How long a bounded run waits for brokers that accept connections and do not answer."""
SUSPICIONS_MAX = 3
"""Connections that break in so many looks in a row are those of a wrong protocol."""


def check(shared: Shared, source: KafkaSource, claims: ClaimStore | None) -> list[str] | None:
    """Return remarks, or None when the service is to stop before all is well.

    Raises PreflightError with one sentence for each problem.
    """
    brokers, store = Brokers(shared, source.list_topics), _Store(shared, claims)
    while True:
        answered = [brokers.look()]
        if claims is not None and brokers.cluster is not None:
            claims.cluster_id = brokers.cluster  # the look that counts compares it
        answered.append(store.look())
        if all(answered) or store.problems or shared.lifecycle.stopping:
            break
        shared.lifecycle.rest(REST_S)
    strangers: list[str] = []
    if not (brokers.problems or shared.lifecycle.stopping):
        strangers = _strangers(shared.settings.kafka.bootstrap_servers, source)
    if problems := [*brokers.problems, *strangers, *store.problems]:
        raise PreflightError(problems)
    if shared.lifecycle.stopping:
        return None
    if claims is not None and claims.fresh and _has_worked(source):
        shared.events.claims_lost()
    return store.remarks


def await_brokers(shared: Shared, list_topics: Callable[[float], Any]) -> bool:
    """Wait for brokers alone, as ``check`` does; return whether to go on."""
    brokers = Brokers(shared, list_topics)
    while not brokers.look() and not shared.lifecycle.stopping:
        shared.lifecycle.rest(REST_S)
    if brokers.problems:
        raise PreflightError(brokers.problems)
    return not shared.lifecycle.stopping


class Brokers:
    """Waits for brokers.

    problems  one sentence for each topic that is not there
    cluster   Kafka's id of the cluster; None: not known
    """

    def __init__(self, shared: Shared, list_topics: Callable[[float], Any]) -> None:
        self._shared = shared
        self._kafka = KafkaPreflight(shared.settings, list_topics)
        stop_after = shared.settings.stop_after
        self._bounded = stop_after.at_end or stop_after.records is not None
        self._away = False
        self._suspicions = 0
        self._settled_s = self._good_until_s = self._away_s = 0.0
        self.problems: list[str] = []
        self.cluster: str | None = None

    def look(self) -> bool:
        """Return whether the brokers are as they must be, or as no waiting makes them."""
        if self._good_until_s > self._shared.clock.monotonic():
            return True
        found = self._kafka.look()
        if found.refusals:
            raise PreflightError(list(found.refusals))
        if found.away:
            self._wait_for(found)
            return False
        clock, events = self._shared.clock, self._shared.events
        if self._away:
            self._away, self._suspicions = False, 0
            self._settled_s = clock.monotonic() + SETTLE_S
            events.brokers_reached()
        self.problems, self.cluster = list(found.absent), found.cluster
        if self.problems:
            return clock.monotonic() >= self._settled_s
        self._good_until_s = clock.monotonic() + GOOD_S
        return True

    def _wait_for(self, found: BrokerAnswers) -> None:
        now_s = self._shared.clock.monotonic()
        if not self._away:
            self._away, self._away_s = True, now_s
        self._suspicions = self._suspicions + 1 if found.suspect else 0
        self._shared.events.brokers_unreachable(found.away)
        # A bounded run was started by hand or by a schedule that wants to know now; brokers that
        # accept connections may only be slow.
        patient = found.open and now_s - self._away_s < BOUNDED_S
        if (self._bounded and not patient) or self._suspicions >= SUSPICIONS_MAX:
            raise PreflightError([self._kafka.sentence(found.away)])


class _Store:
    """The claim store at the start: being away is what the outage policy is for, here as well.

    Under ``pause`` the server that comes back is checked before the first record.
    """

    def __init__(self, shared: Shared, claims: ClaimStore | None) -> None:
        self._shared = shared
        self._claims = claims
        self._began_s = shared.clock.monotonic()
        self._away = False
        self.problems: list[str] = []
        self.remarks: list[str] = []

    def look(self) -> bool:
        """Return whether there is nothing to wait for."""
        if self._claims is None:
            return True
        events, policy = self._shared.events, self._shared.settings.dedup.on_outage
        try:
            found = self._claims.check()
        except ClaimsUnavailableError as error:
            self._away = True
            events.claims_unavailable(str(error), policy)
            return policy == "pass"
        if self._away:
            self._away = False
            events.claims_recovered(self._shared.clock.monotonic() - self._began_s)
        self.problems = [f"HAPAX_DEDUP__REDIS_URL: {problem}" for problem in found.problems]
        self.remarks = found.warnings
        return True


def _strangers(servers: str, source: KafkaSource) -> list[str]:
    """Return whether the group's offsets are those of another cluster.

    An offset that hangs in a transaction cannot be told yet; it is compared again before the first
    record of its partition is handed out.
    """
    try:
        return [f"HAPAX_KAFKA__BOOTSTRAP_SERVERS={servers}: {told}" for told in source.strangers()]
    except BatchAbortedError:
        return []


def _has_worked(source: KafkaSource) -> bool:
    """Whether the group has offsets: then there were claims, and the store has lost them.

    An offset that is held by a transaction of our predecessor is not known yet; it counts as none.
    """
    try:
        return source.group_knows()
    except BatchAbortedError:
        return False
