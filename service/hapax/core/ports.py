"""All that the core and the engines know of the world.

Adapters implement these; memory adapters do it for tests, and one contract suite runs on both.

The whole port of a claim store is ClaimStore: what workers, tasks and commands need of one; the
record path needs Claims alone. claims/ holds the stores and the table that selects one by the
scheme of its address; tests/contract/test_claims.py is what each must pass. Unless a method says
otherwise it raises ClaimsUnavailableError when the store does not answer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import msgspec

from hapax.core.errors import BatchAbortedError, MemberFencedError
from hapax.core.record_path import ClaimRequest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from hapax.core.interrupt import Interrupt
    from hapax.core.offset_commit import CommittedMetadata, Marks, OffsetCommit
    from hapax.core.record_path import Batch, Outputs, Preset, Results
    from hapax.core.records import Coordinates, Progress, Record, TopicPartition

IN_DOUBT = "a request of the last transaction may still be on its way"
"""Why nothing begins before a new producer is registered."""


class Changes(msgspec.Struct, gc=False):
    """What rebalances and the client's events brought since the engine last asked.

    ``assigned`` is None when there was no assignment, and empty when a standby got none.
    ``passing``: errors that heal within a moment, as every start meets them; no warning.
    ``routes_lost``: partitions whose records did not arrive at the native path for a moment.
    ``native_left``: why the native path is not taken any more.
    """

    assigned: list[TopicPartition] | None = None
    revoked: list[TopicPartition] = msgspec.field(default_factory=list)
    lost: list[TopicPartition] = msgspec.field(default_factory=list)
    errors: list[str] = msgspec.field(default_factory=list)
    passing: list[str] = msgspec.field(default_factory=list)
    repeated: dict[TopicPartition, int] = msgspec.field(default_factory=dict)
    routes_lost: list[TopicPartition] = msgspec.field(default_factory=list)
    native_left: str = ""

    @property
    def moved(self) -> set[TopicPartition]:
        """The partitions that were assigned or have left."""
        return {*(self.assigned or ()), *self.revoked, *self.lost}


class Stuck(NamedTuple):
    """A set of records that the client cannot decode: nothing beyond it is read.

    offset  of its first record
    reason  in the client's words
    """

    offset: int
    reason: str


Watch = Callable[[str], AbstractContextManager[None]]
"""``with watch("commit_transaction"):`` around a blocking call: the process ends when the call
overruns every bound, because some client calls ignore their own timeout."""

Why = Literal[
    "operator", "outage", "untaken",
    "window", "waiting", "schema", "state", "undecodable", "stop", "unplaced", "member",
]  # fmt: skip
"""Reasons why a partition is not read; it is while it has none. The first three are of all."""


class Source(Protocol):
    """Brings records and owns positions. One thread only.

    Every call that asks a broker raises BatchAbortedError(resolved=False) when no answer comes,
    and MemberFencedError once the group has given the name to another member.
    """

    @property
    def answered(self) -> bool:
        """Whether a broker has answered when it was last asked."""

    def cut_off(self, *, now: bool = False) -> bool:
        """Whether no broker answers this client any more, and new ones are answered.

        Cheap: brokers are asked now and then. ``now``: at once, for there is a reason.
        """

    def reopen(self) -> None:
        """Join the group again, after MemberFencedError; everything handed out is lost."""

    def renew(self) -> None:
        """Leave alive, and join again with a new client; everything handed out is lost."""

    def take(self, records_max: int, wait_s: float) -> Batch:
        """Return what has arrived, waiting up to ``wait_s`` only for the first record."""

    def attend(self, wait_s: float) -> None:
        """Serve rebalances without taking records."""

    def mark_processed(self, progress: Mapping[TopicPartition, int]) -> None:
        """Take note that everything below these offsets has had its effect."""

    def processed(self) -> Progress:
        """Return per partition where to read again when nothing later is certain."""

    def rewind(self, progress: Mapping[TopicPartition, int]) -> None:
        """Read again from these offsets; partitions that are no longer assigned are ignored."""

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the group's stable committed offsets; None where there is none."""

    def beside(self, where: TopicPartition) -> CommittedMetadata:
        """Return the metadata of the committed offset as of the last query."""

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that are assigned now."""

    def offset_commit(
        self, progress: Mapping[TopicPartition, int], marks: Marks | None = None
    ) -> OffsetCommit:
        """Return progress as one value to send: offsets, and the metadata of a live member.

        ``marks``: what to write with these offsets; without one the mark there is dropped.
        Raises BatchAbortedError when a partition is not assigned, or the member is not live.
        """

    def changes(self) -> Changes:
        """Return and forget what happened since the last call."""

    def stuck(self) -> Mapping[TopicPartition, Stuck]:
        """Return the assigned partitions that are held up by a set that cannot be decoded."""

    def pause(self, why: Why) -> None:
        """Deliver nothing from the partitions that are assigned now."""

    def resume(self, why: Why) -> None:
        """Take this reason away; what has no other is delivered again."""

    def hold(self, where: TopicPartition, why: Why, *, held: bool) -> None:
        """Deliver nothing from one assigned partition, until it is back if it leaves.

        Or take this reason away, as ``resume``.
        """

    def ends(self) -> Progress | None:
        """Return where a bounded run ends in each input partition; None: ask again soon."""

    def last_stable_offsets(self, partitions: Iterable[TopicPartition]) -> Progress:
        """Return how far readers of committed records come now."""

    def adopt_orphans(self) -> list[TopicPartition] | None:
        """Make the group rebalance when partitions are unassigned; return those.

        None: the group is changing, or no broker answers; ask again soon.
        """


class AppliesAll(Protocol):
    """Step 4: business code on the records of one batch."""

    def apply_all(self, batch: Batch, interrupt: Interrupt, preset: Preset) -> Results:
        """Return the results of the records, in their order: of all, or of a prefix.

        Business code does not see the records in ``preset``, which has their results by index.
        It ends early when ``interrupt`` is due, but not before the first call. ``interrupt``
        holds the record that business code is working on.
        """


class Transaction(Protocol):
    """Outputs and progress together, or neither. begin, send, send_offsets, commit.

    Raises BatchAbortedError (already rolled back: the caller only rewinds) or ProducerDeadError
    (the caller opens again, then rewinds to what is committed).
    """

    @property
    def doubts(self) -> Sequence[str]:
        """What made a request of the last transaction go out twice; empty is the rule."""

    @property
    def age_s(self) -> float:
        """Seconds since the last begin."""

    @property
    def one_by_one(self) -> bool:
        """Whether it takes messages one by one only, for instance to learn which is refused."""

    def open(self) -> object:
        """Build a producer that fences every older one of this name."""

    def begin(self) -> None:
        """Start; local, costs no request.

        Raises ProducerDeadError while ``doubts`` remain: a late request of the last transaction
        would be accepted inside this one. Only ``open`` takes them away.
        """

    def send(self, messages: Outputs) -> None:
        """Hand the outputs over. Not yet durable, not yet visible."""

    def send_offsets(self, commit: OffsetCommit) -> None:
        """Add the progress of a group, as its source has just returned it."""

    def commit(self) -> None:
        """Make all of it visible. Returns only when it is certain."""

    def abort(self) -> None:
        """Make none of it visible. Raises ProducerDeadError when that is not certain."""


class Asked(Protocol):
    """A claim that is on its way; ``answer`` or ``drop`` ends it, and either may come late.

    It may have claimed even when nothing reads its answer: claims name coordinates, so that the
    same call finds its own.
    """

    def answer(self) -> Mapping[int, Coordinates]:
        """Wait once; return, by index, the owners of ids that belong to *other* coordinates.

        An id that is missing from it belongs to its record, new or seen before; a record that is
        twice in a batch, and two replays of one original, have the same owner. Raises
        ClaimsUnavailableError: nothing is decided, and the same call may be repeated;
        OtherClusterError: the claims are of another Kafka cluster, and nothing is claimed.
        """
        raise NotImplementedError

    def drop(self) -> None:
        """Give the answer up, at any time; it waits for nothing."""


class Claims(Protocol):
    """Who owns an id: the coordinates of its first sighting (docs/design.md, claims)."""

    def ask(self, wanted: ClaimRequest) -> Asked:
        """Claim all ids in one round trip; raise nothing of it here.

        Other calls may come before the answer; they do not see or disturb what was asked.
        """
        raise NotImplementedError

    def claim(
        self,
        ids: Sequence[bytes],
        records: Sequence[Record],
        replays: Mapping[int, Coordinates],
        gone: Sequence[Coordinates] = (),
    ) -> Mapping[int, Coordinates]:
        """Ask, and wait: see ``Asked.answer``; ``ids[i]`` for ``records[i]``.

        ``replays``: by index, the coordinates of the original that a record replays; they
        replace its own. ``gone``: nothing, or for each id an owner that owns nothing any more
        (claim_owners.py): where the id still belongs to it, its claim is replaced in the same step,
        so that of two members that do this at once one owns the id.
        """
        return self.ask(ClaimRequest(ids, records, replays, gone)).answer()

    def ping(self) -> None:
        """Raise ClaimsUnavailableError unless the store answers."""


class OwnerLookup(Protocol):
    """What brokers say about the owners of claims (claim_owners.py).

    Raises BatchAbortedError when no answer comes: nothing is decided.

    in_turns  whether the caller's thread serves the group between two parts of ``records``
    """

    in_turns: bool

    def committed(
        self, partitions: Iterable[TopicPartition], within_s: float, *, stable: bool
    ) -> dict[TopicPartition, int | None]:
        """Return the group's committed offsets, of any member's partitions.

        ``stable``: wait for transactions that hold an offset, so that nothing sent before this call
        is missing in the answer. Otherwise an offset may be older, never newer.
        """

    def records(self, owners: Collection[Coordinates]) -> Batch:
        """Return those of the records that a reader of the input topics still finds.

        ``Batch.next``: by partition, the first that was not looked at for want of time or room.
        """


class Tell(Protocol):
    """Hears how far long work is."""

    def __call__(
        self, what: str, done: int | None = None, total: int | None = None, note: str = "", /
    ) -> None:
        """Hear of ``what``, as often as it moves; ``done``, ``total``: None where not known."""


def silent(*_said: object) -> None:
    """Hear, and show nothing: a ``Tell``."""


class Clock(Protocol):
    """Time as a parameter."""

    def monotonic(self) -> float:
        """Seconds that never go back."""


def send_progress(
    source: Source,
    transaction: Transaction,
    progress: Mapping[TopicPartition, int],
    marks: Marks | None = None,
) -> None:
    """Read assignment and group metadata just before they are sent; a refusal rolls it back."""
    try:
        commit = source.offset_commit(progress, marks)
    except (BatchAbortedError, MemberFencedError):
        transaction.abort()
        raise
    transaction.send_offsets(commit)


# -- The claim store, as commands ask it -----------------------------------------------------------


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
