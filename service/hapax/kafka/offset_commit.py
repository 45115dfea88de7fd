"""Offsets to commit, in the client's form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hapax.core.offset_commit import GroupOffset

NO_EPOCH = -1


def client_offsets(offsets: Iterable[GroupOffset]) -> list[TopicPartition]:
    return [_client_offset(one) for one in offsets]


def _client_offset(one: GroupOffset) -> TopicPartition:
    epoch = NO_EPOCH if one.leader_epoch is None else one.leader_epoch
    if one.metadata is None:  # the client refuses a None
        return TopicPartition(one.topic, one.partition, one.offset, leader_epoch=epoch)
    return TopicPartition(one.topic, one.partition, one.offset, one.metadata, epoch)
