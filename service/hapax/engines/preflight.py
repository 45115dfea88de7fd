"""What must be there before the first record is read. All problems are reported at once.

What no waiting cures ends the process with exit code 3. Brokers or a claim store
that do not answer are waited for, as a running worker waits: a pod that starts in an outage is no
crash loop. Each round asks both, so that neither outage hides the other.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from hapax.core.errors import BatchAbortedError, ClaimsUnavailableError, PreflightError
from hapax.engines.membership import await_output_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.cluster.cluster_state import BrokerAnswers
    from hapax.core.ports import ClaimStore
    from hapax.engines.lifecycle import Process
    from hapax.settings import Settings

REST_S = 0.2
GOOD_S = 2.0
"""How long brokers count as well while the claim store is waited for."""
SETTLE_S = 10.0
"""Brokers that come back may not know of all topics at first."""
BOUNDED_S = 10.0
"""How long a bounded run waits for brokers that accept and do not answer, and for claims."""
SUSPICIONS_MAX = 3
"""Connections that break in so many looks in a row are those of a wrong protocol."""


class GroupProbe(Protocol):
    """What the source finds out about the group's offsets."""

    def strangers(self) -> list[str]:
        """Return whose of another cluster they are, one sentence each."""

    def group_knows(self) -> bool:
        """Whether there are any."""


def check(brokers: Brokers, source: GroupProbe, claims: ClaimStore | None) -> list[str] | None:
    """Return remarks, None on a stop; raise PreflightError with one sentence for each problem."""
    if not await_output_schema(brokers.process, brokers.settings):
        return None
    store, lifecycle = _Store(brokers.process, brokers.settings, claims), brokers.process.lifecycle
    while True:
        answered = [brokers.look()]
        if claims is not None and brokers.cluster is not None:
            claims.cluster_id = brokers.cluster  # the look that counts compares it
        answered.append(store.look())
        if all(answered) or store.problems or lifecycle.stopping:
            break
        lifecycle.rest(REST_S)
    strangers: list[str] = []
    if not (brokers.problems or lifecycle.stopping):
        # An offset in a transaction is compared again before its partition is read.
        with suppress(BatchAbortedError):
            servers = brokers.settings.kafka.bootstrap_servers
            strangers = [
                f"HAPAX_KAFKA__BOOTSTRAP_SERVERS={servers}: {text}" for text in source.strangers()
            ]
    if problems := [*brokers.problems, *strangers, *store.problems]:
        raise PreflightError(problems)
    if lifecycle.stopping:
        return None
    if claims is not None and claims.fresh:
        # An offset in an open transaction is not known yet, and counts as none.
        with suppress(BatchAbortedError):
            if source.group_knows():
                brokers.process.events.claims_lost()
    return store.remarks


def await_brokers(brokers: Brokers) -> bool:
    """Wait for brokers alone, as ``check`` does; return whether to continue."""
    lifecycle = brokers.process.lifecycle
    while not brokers.look() and not lifecycle.stopping:
        lifecycle.rest(REST_S)
    if brokers.problems:
        raise PreflightError(brokers.problems)
    return not lifecycle.stopping


class Brokers:
    """Waits for brokers.

    problems  one sentence for each missing topic
    cluster   Kafka's id of the cluster; None: not known
    """

    def __init__(
        self, process: Process, settings: Settings, ask: Callable[[], BrokerAnswers]
    ) -> None:
        """``ask``: queries brokers and topics once."""
        self.process = process
        self.settings = settings
        self._ask = ask
        self._bounded = settings.bounded
        self._away = False
        self._suspicions = 0
        self._settled_s = self._good_until_s = self._away_s = 0.0
        self.problems: list[str] = []
        self.cluster: str | None = None

    def look(self) -> bool:
        """Return whether the brokers are as they must be, or as no waiting makes them."""
        if self._good_until_s > self.process.clock.monotonic():
            return True
        found = self._ask()
        if found.refused:
            raise PreflightError(found.problem)
        if found.away:
            self._wait_for(found)
            return False
        clock, events = self.process.clock, self.process.events
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
        now_s = self.process.clock.monotonic()
        if not self._away:
            self._away, self._away_s = True, now_s
        self._suspicions = self._suspicions + 1 if found.suspect else 0
        self.process.events.brokers_unreachable(found.away)
        # A bounded run was started by hand or by a schedule that wants to know now; brokers that
        # accept connections may only be slow.
        patient = found.open and now_s - self._away_s < BOUNDED_S
        if (self._bounded and not patient) or self._suspicions >= SUSPICIONS_MAX:
            raise PreflightError(found.problem)


class _Store:
    """The claim store at the start: being away is what the outage policy is for, here as well.

    Under ``pause`` the server that comes back is checked before the first record.
    """

    def __init__(self, process: Process, settings: Settings, claims: ClaimStore | None) -> None:
        self._process = process
        self._policy = settings.dedup.on_outage
        self._bounded = settings.bounded
        self._claims = claims
        self._began_s = process.clock.monotonic()
        self._away = False
        self.problems: list[str] = []
        self.remarks: list[str] = []

    def look(self) -> bool:
        if self._claims is None:
            return True
        events, policy = self._process.events, self._policy
        try:
            found = self._claims.check()
        except ClaimsUnavailableError as error:
            self._away = True
            events.claims_unavailable(str(error), policy)
            waited_s = self._process.clock.monotonic() - self._began_s
            if self._bounded and policy == "pause" and waited_s > BOUNDED_S:
                self.problems = [f"HAPAX_DEDUP__REDIS_URL: {error}"]
            return policy == "pass" or bool(self.problems)
        if self._away:
            self._away = False
            events.claims_recovered(self._process.clock.monotonic() - self._began_s)
        self.problems = [f"HAPAX_DEDUP__REDIS_URL: {problem}" for problem in found.problems]
        self.remarks = found.warnings
        return True
