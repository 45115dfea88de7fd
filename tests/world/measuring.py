"""What tools that measure say of groups at rest: how many records are left to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition

from tests.kit.kept_clients import QUIET
from tests.kit.topics import read_back
from tests.world.programs import ask

if TYPE_CHECKING:
    from tests.world.installed import Command

AFTER_LAST = ("aborted", "tail", "open")
"""Topics whose group stands one past the last committed record, as several clients leave it."""


def measured(brokers: str, topics: dict[str, str], command: Command, unique: str) -> dict[str, str]:
    """Return question → answer: groups that have read all committed records, and one that has none.

    Of a program that prints several lines, one for each way it has, all that differ.
    """
    groups = {shape: (topics[shape], f"{unique}-{shape}") for shape in AFTER_LAST}
    for topic, group in groups.values():
        _commit(brokers, group, topic, 1 + read_back(brokers, topic)[-1].offset)
    app = topics["hapax"].removesuffix("-out")
    groups["hapax"] = (f"{app}-in", app)
    groups["no offset"] = (topics["tail"], f"{unique}-none")
    return {f"{shape}, measured": _said(brokers, command, *one) for shape, one in groups.items()}


def _said(brokers: str, command: Command, topic: str, group: str) -> str:
    answer = ask(command, "lag", {"bootstrap": brokers, "topic": topic, "group": group})
    if answer.failure:
        return f"error: {answer.failure}"
    return " or ".join(map(str, dict.fromkeys(answer.lags))) or "nothing"


def _commit(brokers: str, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({**QUIET, "bootstrap.servers": brokers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()
