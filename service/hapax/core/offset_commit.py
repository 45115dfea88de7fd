"""OffsetCommit: the progress of a group as one value, and the step that sends it.

The source makes the value: it knows which partitions are assigned, whether it is a live member, and
what is written with an offset. The transaction only sends it, so neither knows the other.

The metadata of a committed offset is a text, of which brokers keep 4096 bytes
(``offset.metadata.max.bytes``): ``hapax topic=<id> cluster=<id> began=<partitions>
span=<start>:<stop>:<name> deaths=<n> until=<offset> elsewhere=<id> state=<id>``, in this order,
each word left out when it is not known. Offsets that Kafka's own tools wrote have none of them, and
earlier versions wrote only ``topic``; both are read as "not known".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from hapax.core.errors import BatchAbortedError
from hapax.core.span import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hapax.core.records import TopicPartition

_FORM = "hapax"
UNNAMED = "unnamed"
"""In place of the id of a cluster whose brokers do not report it."""


class CommittedText(Protocol):
    """A committed offset, as a client hands it out."""

    @property
    def metadata(self) -> str | None:
        """The text that is kept with it."""


def text_of(answer: CommittedText) -> str:
    """Return the text of a committed offset; empty without one that can be read.

    confluent-kafka ends what it commits with a NUL, and reads on to the next one: after the text
    of a client that writes none there are bytes of something else, which may be no UTF-8.
    """
    try:
        return answer.metadata or ""
    except UnicodeDecodeError:
        return ""


class CommittedMetadata(msgspec.Struct, frozen=True, gc=False):
    """The facts in the metadata of one partition's committed offset.

    topic_id    Kafka's id of the topic that the offset belongs to (KIP-516)
    cluster_id  Kafka's id of the cluster that the offset belongs to
    began       how many partitions the topic had when the group began to read it: a partition
                with a higher number was added later and is read from its first record
    span        what the group was asked to read of the partition (HAPAX_INPUT__END)
    deaths      how many processes died with the record at this offset in the batch they worked on
    until       the end (exclusive) of the range that was being worked on when the first died
    elsewhere   Kafka's id of the cluster of the outputs, where the progress counts: the offset is
                for tools that show the lag, and nothing begins at it
    changelog_id  that of the topic which had the state at this offset; "None": it was not known
    """

    topic_id: str | None = None
    cluster_id: str | None = None
    began: int | None = None
    deaths: int = 0
    until: int | None = None
    span: Span | None = None
    elsewhere: str | None = None
    changelog_id: str | None = None

    def encode(self) -> str:
        """Return the text to commit; empty without any fact."""
        facts = {
            "topic": self.topic_id,
            "cluster": self.cluster_id,
            "began": self.began,
            "span": None if self.span is None else self.span.encode(),
            "deaths": self.deaths or None,
            "until": self.until,
            "elsewhere": self.elsewhere,
            "state": self.changelog_id,
        }
        words = [f"{name}={value}" for name, value in facts.items() if value is not None]
        return " ".join([_FORM, *words]) if words else ""

    @classmethod
    def of(cls, answer: CommittedText) -> CommittedMetadata:
        return cls.decode(text_of(answer))

    @classmethod
    def decode(cls, text: str | None) -> CommittedMetadata:
        """Read what was committed; a text of another origin, and a damaged word, are ignored."""
        form, *words = (text or "").split(" ")
        if form != _FORM:
            return cls()
        facts = dict(word.partition("=")[::2] for word in words)
        return cls(
            topic_id=facts.get("topic") or None,
            cluster_id=facts.get("cluster") or None,
            began=_number(facts.get("began")),
            deaths=_number(facts.get("deaths")) or 0,
            until=_number(facts.get("until")),
            span=Span.decode(facts["span"]) if "span" in facts else None,
            elsewhere=facts.get("elsewhere") or None,
            changelog_id=facts.get("state") or None,
        )


def informative(offset: GroupOffset, cluster_id: str | None) -> GroupOffset:
    """Return an offset with the mark that the progress counts on another cluster."""
    facts = CommittedMetadata.decode(offset.metadata)
    marked = msgspec.structs.replace(facts, elsewhere=cluster_id or UNNAMED)
    return offset._replace(metadata=marked.encode())


def _number(word: str | None) -> int | None:
    return int(word) if word and word.isascii() and word.isdecimal() and len(word) < 20 else None  # noqa: PLR2004 - 20 digits are more than an offset has


class GroupOffset(NamedTuple):
    """One offset to commit: the next one to read.

    metadata      the text to keep with it (CommittedMetadata)
    leader_epoch  of the records before it (KIP-320)
    """

    topic: str
    partition: int
    offset: int
    metadata: str | None = None
    leader_epoch: int | None = None


class OffsetCommit(msgspec.Struct, frozen=True, gc=False):
    """Offsets of assigned partitions, and the group metadata of a live member that commits them."""

    offsets: Sequence[GroupOffset]
    group_metadata: bytes


def require_assigned(
    partitions: Iterable[TopicPartition], assignment: frozenset[TopicPartition]
) -> None:
    """Raise BatchAbortedError when a partition is not assigned: the broker does not check that."""
    foreign = {*partitions} - assignment
    if foreign:
        raise BatchAbortedError(f"partitions are no longer assigned: {sorted(foreign)}")


class Mark(NamedTuple):
    """The metadata of the offset that is being worked at.

    deaths  how many processes will have died here if this one does
    until   the end (exclusive) of what is worked on; None: as much as one batch may hold
    """

    deaths: int
    until: int | None = None


Marks = dict["TopicPartition", Mark]
