"""Events of the claim store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.telemetry.events.base import Narrator, printable

if TYPE_CHECKING:
    from typing import Literal

    from hapax.core.batch_result import BatchResult
    from hapax.core.id_findings import IdFindings


MISSING: Final = "HAPAX_DEDUP__ID finds no id in most records: their duplicates pass"
SHARED: Final = (
    "records of one id with different keys: HAPAX_DEDUP__ID names no event, and all but the first"
    " record of an id are dropped; add a part, like +key"
)


class ClaimEvents(Narrator):
    """The claim store goes away, comes back, or comes back empty."""

    def claims_unavailable(self, reason: str, policy: Literal["pause", "pass"]) -> None:
        """Say that one call did not answer. Under ``pass`` the service stays ready."""
        self._health.claims_ok = policy == "pass"
        away = self._health.claims_away
        begins = away is None
        self._health.claims_away = self._outage(away, reason)
        self._metrics.dedup_store_up.of().set(0)
        self._metrics.dedup_lookups.of("error").inc()
        if self._first("claims_unavailable", policy) or begins:
            self._logger.error("claims_unavailable", reason=printable(reason), policy=policy)

    def claims_recovered(self, outage_s: float) -> None:
        """Say that the claim store answers again."""
        self._health.claims_ok = True
        self._health.claims_away = None
        self._metrics.dedup_store_up.of().set(1)
        self._logger.info("claims_recovered", outage_s=round(outage_s, 3))

    def claims_lost(self) -> None:
        """Say that the claim store lost what it knew: earlier events may come through twice."""
        self._metrics.dedup_claim_losses.of().inc()
        self._logger.error("claims_lost")

    def claims_evicted(self, problem: str, evicted: int) -> None:
        """Take note of a look at the claim store: why it may delete claims, and keys evicted since.

        ``problem`` is empty where it keeps them.
        """
        begins = bool(problem) and not self._health.claims_evicted
        self._health.claims_evicted = bool(problem)
        self._metrics.dedup_store_evicts.of().set(bool(problem))
        if evicted:
            self._metrics.dedup_keys_evicted.of().inc(evicted)
        if begins or (evicted and self._first("claims_evicted")):
            self._logger.error("claims_evicted", reason=printable(problem), keys=evicted)

    def claims_clock_jumped(self, seconds: float) -> None:
        """Log that Redis' clock was set forward: claims end so much earlier, without a word."""
        self._metrics.dedup_clock_jumps.of().inc()
        self._logger.error("claims_clock_jumped", seconds=round(seconds, 3))

    def _ids_told(self, ids: IdFindings) -> None:
        """Say that ids do not name events, in their place or at all."""
        if ids.missing and self._first("ids_missing"):
            self._logger.warning("ids_missing", records=ids.missing, of=ids.looked, hint=MISSING)
        if ids.shared is not None:
            self._metrics.dedup_ids_on_different_keys.of().inc()
            one, other = map(str, ids.shared)
            if self._first("id_on_different_keys"):
                self._logger.warning("id_on_different_keys", record=one, other=other, hint=SHARED)

    def _claims_settled(self, settled: BatchResult) -> None:
        """Conclude from a batch that the store went away or came back.

        Under ``pass`` no other part notices: the core goes on without claims.
        """
        if settled.claims_taken_over:
            self._metrics.dedup_claims_taken_over.of().inc(settled.claims_taken_over)
            self._logger.warning("claims_taken_over", claims=settled.claims_taken_over)
        if settled.ids is not None:
            self._ids_told(settled.ids)
        away = self._health.claims_away
        if settled.unchecked:
            self.claims_unavailable("a batch was processed without claims", "pass")
        elif away is not None and settled.claims_new_or_own + settled.duplicates:
            self.claims_recovered(self._monotonic_s() - away.began_s)
