"""Every error, named by what happens next.

poison     this record becomes a dead letter, the batch continues
retriable  the same call again, bounded
aborted    nothing of the batch is visible: rewind, take it again
fatal      this producer is dead: rebuild it and continue
stop       the process exits, with an exit code that has a runbook section
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from hapax.core.records import Coordinates, TopicPartition
    from hapax.core.results import Failure


class ExitCode(IntEnum):
    """How the process ended, for its supervisor (docs/runbooks.md has a section for each)."""

    DRAINED = 0
    UNEXPECTED = 1
    CONFIGURATION = 2
    PREFLIGHT = 3
    FENCED = 4
    DEAD_LETTER_LIMIT = 5
    POSITION_LOST = 6
    WATCHDOG = 7
    CALL_HUNG = 8


class HapaxError(Exception):
    """Root of all errors that Hapax raises on purpose."""

    transaction_s: float = 0.0
    """Age of the transaction that this error ended; 0 when it ended none. Set by the core."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep all that it says on the way between processes."""
        return _arrived, (type(self), self.args), self.__dict__


def _arrived(kind: type[HapaxError], args: tuple[Any, ...]) -> HapaxError:
    return kind.__new__(kind, *args)


class Poison(HapaxError):  # noqa: N818 - the word that business code raises
    """This record can never have outputs. It becomes a dead letter; its batch continues."""


class OutputsTooLarge(Poison):
    """The outputs of one record are more than HAPAX_CALL__OUTPUT_BYTES_MAX."""


class RetryLater(HapaxError):  # noqa: N818 - the word that business code raises
    """Retriable: call the transform again with this record after a while; the others are processed.

    ``after``: ``5m``, a timedelta, or seconds; from 1 s to 24 h. ``reason`` goes into the dead
    letter that the record becomes when the last try fails as well.
    """

    def __init__(self, reason: str = "", *, after: str | float | timedelta) -> None:
        super().__init__(reason or f"again after {after}")
        self.after = after


class ClaimsUnavailableError(HapaxError):
    """Retriable: the claim store is away. The outage policy says whether to hold or to pass."""


class SchemasUnavailableError(HapaxError):
    """Retriable: a schema that a record needs is not to be had now. No record is dropped for it.

    ``key``: which one, as ``ports.Schemas`` calls it. ``where``: the partition that waits for it,
    set by the core. ``refused``: the registry does not accept who asks; no waiting helps.
    """

    where: TopicPartition | None = None

    def __init__(self, reason: str, *, key: str = "", refused: bool = False) -> None:
        super().__init__(reason)
        self.key = key
        self.refused = refused


class StateTypeError(HapaxError):
    """A value of the state is not of the type that the transform expects: the process leaves."""


class StateUnreadError(HapaxError):
    """Retriable: the state of these partitions is still to be read; they wait for it.

    ``places``: by partition, the offset at which it must be.
    """

    def __init__(self, places: Mapping[TopicPartition, int]) -> None:
        super().__init__(f"the state of {len(places)} partitions is to be read from the changelog")
        self.places = places


class BatchAbortedError(HapaxError):
    """The transaction was rolled back, or never begun: rewind and take the batch again.

    ``refused``: by index into the messages sent, those that are surely to blame, with the reason;
    brokers refuse whole sets of messages, so one counts only when it was alone in its set. The core
    turns them into ``culprits``, by coordinates of their records. ``content``: what the batch holds
    is the likely reason (too large, invalid), so repeating it as it is cannot help. ``resolved``:
    false when the error came in or after the commit, so that only the group's committed offsets
    show where to continue (an UNKNOWN answer to EndTxn may stand for an applied commit).
    """

    def __init__(
        self,
        reason: str,
        *,
        refused: Mapping[int, str] | None = None,
        content: bool = False,
        resolved: bool = True,
    ) -> None:
        super().__init__(reason)
        self.refused: Mapping[int, str] = refused or {}
        self.culprits: Mapping[Coordinates, Failure] = {}
        self.content = content
        self.resolved = resolved


class ProducerDeadError(HapaxError):
    """Fatal for this producer, not for the process.

    Build a new one, then rewind to what the group says is committed. ``fenced``: the broker has
    seen a newer epoch of this id. ``unanswered``: no broker answered at all.
    """

    def __init__(self, reason: str, *, fenced: bool = False, unanswered: bool = False) -> None:
        super().__init__(reason)
        self.fenced = fenced
        self.unanswered = unanswered


class MemberFencedError(HapaxError):
    """Fatal for this member of the group, not for the process: join again.

    ``explained``: connections broke shortly before, so that its own repeated request may have
    fenced it (a join that was sent twice registers the instance twice).
    """

    def __init__(self, reason: str, *, explained: bool) -> None:
        super().__init__(reason)
        self.explained = explained


class ClientsOutdatedError(HapaxError):
    """Files that clients were built of hold something else now: build them again. No failure."""


class StopError(HapaxError):
    """The process must leave. The message is one sentence that says what to do."""

    exit_code: ClassVar[ExitCode] = ExitCode.UNEXPECTED


class ProblemsError(StopError):
    """A stop for what a person has to change. ``problems``: one sentence for each, or for all."""

    def __init__(self, problems: str | list[str]) -> None:
        self.problems = [problems] if isinstance(problems, str) else problems
        super().__init__("\n".join(self.problems))


class ConfigurationError(ProblemsError):
    """Settings that cannot work. ``problems``: one sentence for each."""

    exit_code = ExitCode.CONFIGURATION


class PreflightError(ProblemsError):
    """The outside is not fit to start on. ``problems``: one sentence for each."""

    exit_code = ExitCode.PREFLIGHT


class DuplicateInstanceError(StopError):
    """Another live process uses the name of this one."""

    exit_code = ExitCode.FENCED


class DeadLetterLimitError(StopError):
    """Too many records fail, or one fails and no dead-letter topic is configured."""

    exit_code = ExitCode.DEAD_LETTER_LIMIT


class PositionLostError(StopError):
    """The committed offset is no longer in the log: retention, truncation or a new topic."""

    exit_code = ExitCode.POSITION_LOST


class OtherClusterError(PositionLostError):
    """Offsets or claims belong to another Kafka cluster than the brokers that answer."""


def other_cluster(what: str, there: str, here: str) -> str:
    """Return the sentence: ``what`` is of cluster ``there``, the brokers are ``here``, ways out."""
    return (
        f"{what} belong to Kafka cluster {there}, but the brokers are those of cluster {here},"
        " where the same topics, partitions and offsets are other records: choose a new HAPAX_APP,"
        " or, if this cluster takes over from the other one, stop every process of the app and run"
        " hapax claims adopt"
    )
