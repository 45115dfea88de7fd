"""Offsets committed by bare requests, byte for byte as clients other than librdkafka's write them.

confluent-kafka ends every text that it commits with a NUL, so it cannot stand in for them.
"""

import socket
import struct
from collections.abc import Mapping

from confluent_kafka import Consumer, TopicPartition

ANSWER_S = 30.0
_OFFSET_COMMIT, _VERSION = 8, 7


def commit_raw(
    brokers: str, group: str, topic: str, offsets: Mapping[int, tuple[int, int, str]]
) -> None:
    """Commit offset, leader epoch (-1: none) and text of partitions, outside of any membership.

    ``brokers``: a single one, which is the coordinator.
    """
    client = Consumer({"bootstrap.servers": brokers, "group.id": group})
    client.committed([TopicPartition(topic, 0)], ANSWER_S)  # from now on there is a coordinator
    client.close()
    partitions = b"".join(
        struct.pack(">iqi", number, offset, epoch) + _text(text)
        for number, (offset, epoch, text) in offsets.items()
    )
    request = b"".join(
        [
            struct.pack(">hhi", _OFFSET_COMMIT, _VERSION, 1),
            _text("raw"),
            _text(group),
            struct.pack(">i", -1),
            _text(""),
            struct.pack(">h", -1),
            struct.pack(">i", 1),
            _text(topic),
            struct.pack(">i", len(offsets)) + partitions,
        ]
    )
    host, _, port = brokers.rpartition(":")
    with socket.create_connection((host, int(port)), ANSWER_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as answers:
            (length,) = struct.unpack(">i", answers.read(4))
            answer = answers.read(length)
    answered = answer[-6 * len(offsets) :]  # number and error of each partition
    codes = [struct.unpack_from(">ih", answered, 6 * at)[1] for at in range(len(offsets))]
    assert codes == [0] * len(offsets), codes


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()
