"""Where a partition begins for which the group has no offset. Pure; run and commands share it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hapax.core.offset_commit import CommittedMetadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hapax.cluster.partition_offsets import LogOffsets
    from hapax.core.records import Progress, TopicPartition

_SHOWN_MAX = 5
_OF_A_DEPLOYMENT = re.compile(
    r"-[bcdfghjklmnpqrstvwxz2456789]{6,10}-[bcdfghjklmnpqrstvwxz2456789]{5}$"
)

_CLIENTS = {
    "Kafka Streams": re.compile(r"AgAAA[\w+/=]*"),  # version 2 and a time in ms, in base64
    "franz-go": re.compile(r".+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),  # its member id
}


def new_with_each_start(instance: str) -> str:
    """Return the sentence about a static member whose name is that of a Deployment's pod, or none.

    Kubernetes ends these names with the hash of the template and five random characters.
    """
    if not _OF_A_DEPLOYMENT.search(instance):
        return ""
    return (
        f"HAPAX_INSTANCE={instance} looks like the name of a Deployment's pod, which is another one"
        " after each restart: the partitions of a pod that is gone wait for"
        " HAPAX_GROUP__SESSION_TIMEOUT. Set HAPAX_GROUP__MEMBERSHIP=dynamic, or run a StatefulSet"
    )


def topics_of(places: Iterable[TopicPartition]) -> list[str]:
    return list(dict.fromkeys(topic for topic, _number in places))


def of_another_client(beside: Iterable[CommittedMetadata]) -> bool:
    """Whether a topic has offsets, and none of them was committed by Hapax."""
    known = list(beside)
    return bool(known) and all(one == CommittedMetadata() for one in known)


def client_of(text: str) -> str:
    """Return which client begins the texts of its offsets so; empty: most write none."""
    return next((name for name, form in _CLIENTS.items() if form.match(text)), "")


def taken_over(topic: str, beside: Iterable[CommittedMetadata]) -> str:
    """Return the sentence about a topic whose offsets are those of another client, or none."""
    remark = f"{topic}: the group's offsets are another client's: this process continues there"
    return remark if of_another_client(beside) else ""


def began(beside: Iterable[CommittedMetadata]) -> int | None:
    """Return how many partitions the topic had when the group began; None: it is not known."""
    return max((one.began for one in beside if one.began is not None), default=None)


def by_start(number: int, beside: Sequence[CommittedMetadata]) -> bool:
    """Whether HAPAX_INPUT__START places this partition; otherwise it is read from its first record.

    ``beside``: the metadata of the group's offsets in the other partitions of the topic. A group
    of Hapax has begun all partitions that there were, so one without an offset was added since;
    other clients leave none where they have read nothing.
    """
    if not beside or of_another_client(beside):
        return True
    count = began(beside)
    return count is not None and number < count


def partly_begun(
    missing: Sequence[TopicPartition], known: Mapping[int, CommittedMetadata], start: str
) -> str:
    """Return the sentence about partitions without an offset in a topic where others have one."""
    topic = missing[0][0]
    beside = list(known.values())
    placed = sum(by_start(number, beside) for _topic, number in missing)
    where = [f"at HAPAX_INPUT__START={start}"] * bool(placed)
    if placed < len(missing):
        where.append(f"{'the others ' if placed else ''}at their first record: they were added")
    total = len(missing) + len(known)
    return (
        f"{topic}: {len(missing)} of {total} partitions have no offset, they begin"
        f" {', '.join(where)}"
    )


def starts_as_proposed(
    proposed: Progress, logs: Mapping[TopicPartition, LogOffsets], start: str
) -> bool:
    """Whether ``start`` leads to the very offsets that outputs propose: nothing is lost then."""
    places = {
        where: {"earliest": log.log_start, "latest": log.last_stable}.get(start)
        for where, log in logs.items()
    }
    return all(places[where] == offset for where, offset in proposed.items())


def expired(group: str, outputs: str, proposed: Progress) -> str:
    """Return the sentence about topics at which the group has worked and has no offset any more."""
    topics = topics_of(proposed)
    shown = [f"{topic}/{number}/{at}" for (topic, number), at in sorted(proposed.items())]
    more = f" and {len(shown) - _SHOWN_MAX} more" if len(shown) > _SHOWN_MAX else ""
    ways = "; ".join(f"hapax offsets set {topic} outputs --yes" for topic in topics)
    return (
        f"{', '.join(topics)}: group {group} has no offset in any partition, but {outputs} holds"
        " what was made of its records: the offsets have expired while nothing ran, or were"
        " deleted. Beginning again would process records a second time, or skip some. After the"
        f" last records that outputs name: {', '.join(shown[:_SHOWN_MAX])}{more}. Compare with"
        f" hapax audit, then set these ({ways}), or others with --keep-claims; hapax offsets set"
        " TOPIC earliest begins again, on purpose"
    )
