"""The whole port of a claim store: what workers, tasks and commands need of one.

The record path needs ``ports.Claims`` alone. claims/ holds the stores and the table that selects
one by the scheme of its address; tests/contract/test_claims.py is what each must pass.
Unless a method says otherwise it raises ClaimsUnavailableError when the store does not answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import msgspec

from hapax.core.ports import Claims

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hapax.core.records import Coordinates


class Preflight(NamedTuple):
    """What was found before the start. One sentence each.

    problems  the promise does not hold with this server: do not start
    warnings  it holds, but an operator should know
    """

    problems: list[str]
    warnings: list[str]


class Owned(NamedTuple):
    """The owner of an id, and how long it is still remembered."""

    owner: Coordinates
    life_ms: int


class Judgement(NamedTuple):
    """What a store makes of one aspect of itself, in its own words.

    verdict  as in hapax.operations.doctor.check
    saw      what was found, one phrase
    fix      what to do; empty where nothing is to be done
    """

    verdict: Literal["PASS", "WARN", "FAIL", "UNTOLD"]
    saw: str
    fix: str = ""


class StoreHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What a store reports about itself.

    name          what people call this kind of store
    place         where it is, without secrets
    problem       why it did not answer; None where it did, and only then the rest is known
    info          what its server reports, settings: its configuration, as far as it may be read
    refused       what the user of the service could not do, with the reason
    skew_ms       its clock minus the local one
    claimed       whether claims of this app exist; None where that is unknown
    cluster_id    Kafka's id of the cluster that the claims belong to; None: none is stored
    used_bytes    memory in use; limit_bytes: what it may use, 0 without a limit; machine_bytes: of
                  its machine. None: unknown
    limit_name    what the limit is called where it is set
    bytes_per_id  what an id costs in all the copies that are kept of it
    judgements    by aspect: version, permissions, role, eviction, persistence, replicas
    """

    name: str
    place: str
    problem: str | None = None
    info: Mapping[str, str] = {}
    settings: Mapping[str, str] = {}
    refused: tuple[str, ...] = ()
    skew_ms: int | None = None
    claimed: bool | None = None
    cluster_id: str | None = None
    used_bytes: int | None = None
    limit_bytes: int | None = None
    machine_bytes: int | None = None
    limit_name: str = ""
    bytes_per_id: int = 0
    judgements: Mapping[str, tuple[Judgement, ...]] = {}


class ClaimStore(Claims, Protocol):
    """Claims of one app, for all that is not the record path.

    cluster_id  Kafka's id of the cluster that offsets belong to; None: not known, not compared
    fresh       whether the first call found no claims of this app: its first start, or they were
                lost while no process ran. Committed offsets of the group show which.

    Claims are rebuilt by ``claim`` itself, with the owners that outputs name.
    """

    cluster_id: str | None

    @property
    def fresh(self) -> bool:
        """Whether the first call found no claims of this app."""

    def check(self) -> Preflight:
        """Find what is wrong with the store, by asking it and by trying out every permission.

        Raises ClaimsUnavailableError when it is only away: that is what the outage policy is for.
        """

    def owner(self, claim: bytes) -> Owned | None:
        """Return who owns it; None when no record does."""

    def forget(self, claim: bytes) -> bool:
        """Forget the claim: the next record with this id is a first sighting. Whether it was."""

    def release(self, owned: Sequence[tuple[bytes, Coordinates]]) -> int:
        """Forget those claims that belong to the coordinates given with them; return how many."""

    def cluster(self) -> str | None:
        """Return the id of the Kafka cluster that the claims belong to; None: none was written."""

    def adopt(self) -> str | None:
        """Let the claims belong to this cluster from now on; return the one before."""

    def health(self) -> StoreHealth:
        """Return what the store reports of itself. Never raises for an outage; changes no claim.

        No epoch may begin: a store that was emptied must stay recognisable as one.
        """

    def close(self) -> None:
        """Drop the connection. A later call would open it again."""
