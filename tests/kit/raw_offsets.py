"""Offsets committed by bare requests, byte for byte as clients other than librdkafka's write them.

confluent-kafka ends every text that it commits with a NUL, so it cannot stand in for them.
"""

from collections.abc import Mapping
from contextlib import closing

from confluent_kafka import Consumer, TopicPartition
from kafka.protocol.consumer import OffsetCommitRequest, OffsetCommitResponse

from tests.fault.watching.wire import Line

ANSWER_S = 30.0
_VERSION = 7


def commit_raw(
    brokers: str, group: str, topic: str, offsets: Mapping[int, tuple[int, int, str]]
) -> None:
    """Commit offset, leader epoch (-1: none) and text of partitions, outside of any membership.

    ``brokers``: a single one, which is the coordinator.
    """
    client = Consumer({"bootstrap.servers": brokers, "group.id": group})
    client.committed([TopicPartition(topic, 0)], ANSWER_S)  # from now on there is a coordinator
    client.close()
    asked = OffsetCommitRequest.OffsetCommitRequestTopic
    one = asked.OffsetCommitRequestPartition
    partitions = [
        one(
            partition_index=number,
            committed_offset=offset,
            committed_leader_epoch=epoch,
            committed_metadata=text,
        )
        for number, (offset, epoch, text) in offsets.items()
    ]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[asked(name=topic, partitions=partitions)],
    )
    with closing(Line(int(brokers.rpartition(":")[2]), ANSWER_S)) as line:
        (answer,) = line.ask(request, OffsetCommitResponse, _VERSION).topics
    codes = [each.error_code for each in answer.partitions]
    assert codes == [0] * len(offsets), codes
