"""Who is in a consumer group, and which partitions none of its members owns."""

from __future__ import annotations

import math
import time
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from hapax.kafka.errors import of_group
from hapax.kafka.properties import APART, admin_properties, consumer_properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hapax.core.records import TopicPartition
    from hapax.settings import Settings

MEMBERS_TIMEOUT_S, ORPHANS_TIMEOUT_S = 10.0, 5.0
MEMBERS_RENEWED_S = 15.0
"""Longer than a request may take, so that two are never under way."""


def members(settings: Settings) -> dict[str, str] | None:
    """Return the transactional ids of the group's members, each with its host; None: not known.

    They follow from the client ids. A member of another program keeps its client id.
    """
    described = _described(settings)
    if described is None:
        return None
    ours = f"{settings.app}-"
    return {
        (
            f"{settings.app}{APART}{one.client_id.removeprefix(ours)}"
            if one.client_id.startswith(ours)
            else one.client_id
        ): one.host
        for one in described
    }


class GroupMembers:
    """Who is in the group and holds what, for those who must not wait for brokers.

    Each ``latest`` returns the last answer; when that is old, a thread asks for another one. So
    brokers are asked only while there is a reader, and about once in ``MEMBERS_RENEWED_S``.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._latest: tuple[float, dict[str, dict[str, list[int]]]] | None = None
        self._due_s = -math.inf
        self._lock = Lock()

    def latest(self) -> tuple[float, dict[str, dict[str, list[int]]]] | None:
        """Return the Unix time of the last answer, and member → topic → partitions; None: none yet.

        A member is its client id with its host.
        """
        with self._lock:
            now_s = time.monotonic()
            if now_s >= self._due_s:
                self._due_s = now_s + MEMBERS_RENEWED_S
                Thread(target=self._ask, name="group-members", daemon=True).start()
        return self._latest

    def _ask(self) -> None:
        described = _described(self._settings)
        if described is not None:
            self._latest = (time.time(), {_name(one): _held(one) for one in described})


def _described(settings: Settings) -> list[Any] | None:
    properties: dict[str, Any] = {**admin_properties(consumer_properties(settings)), "log_level": 0}
    admin = AdminClient(properties)  # a name holds it: without one its answers never come
    try:
        group = of_group(lambda: _asked(admin, settings.app, MEMBERS_TIMEOUT_S), MEMBERS_TIMEOUT_S)
    except KafkaException as error:
        # A group without a first member is not known.
        return [] if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND else None
    except TimeoutError:
        return None
    return list(group.members)


def _asked(admin: AdminClient, group: str, timeout_s: float) -> Any:
    return admin.describe_consumer_groups([group], request_timeout=timeout_s)[group].result(
        timeout_s
    )


def _name(member: Any) -> str:
    return f"{member.client_id} ({member.host.removeprefix('/')})"


def _held(member: Any) -> dict[str, list[int]]:
    held: dict[str, list[int]] = {}
    for one in sorted(
        member.assignment.topic_partitions, key=lambda one: (one.topic, one.partition)
    ):
        held.setdefault(one.topic, []).append(one.partition)
    return held


def orphans(
    consumer_properties: Mapping[str, Any], partitions: Iterable[TopicPartition], logger: object
) -> list[TopicPartition] | None:
    """Return those of ``partitions`` that no member of the group owns, although it is at rest.

    A static member that comes back within its session timeout gets its old assignment without a
    rebalance (KIP-345). When partitions were added meanwhile, its fresh client sees no *change* of
    metadata either, and they stay unread until the next rebalance (measured: never within 45 s).

    None while the group is changing, and when the brokers do not answer: then nothing is known.
    """
    admin = AdminClient(admin_properties(consumer_properties), logger=logger)
    try:
        described = _asked(admin, consumer_properties["group.id"], ORPHANS_TIMEOUT_S)
    except (KafkaException, TimeoutError):
        return None
    if described.state != ConsumerGroupState.STABLE:
        return None
    owned = {
        (one.topic, one.partition)
        for member in described.members
        for one in member.assignment.topic_partitions
    }
    return sorted(set(partitions) - owned)
