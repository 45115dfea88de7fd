"""Asks brokers which logs they have: ids of cluster and topics, epochs of leaders, cuts.

Only the client can ask with every kind of login, and it says what it hears in lines of its own
(kafka/client_log.py). So a consumer is assigned the partitions, and dropped before it reads on.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from hapax.cluster.micro_batches import Anchors, InputLogs
from hapax.core.errors import BatchAbortedError
from hapax.kafka.client_log import DEBUG, TopicIds
from hapax.kafka.errors import describe, place_of
from hapax.kafka.properties import build
from hapax.kafka.read.offsets_client import reader_properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hapax.core.records import TopicPartition as Where
    from hapax.settings import Settings

ANSWER_TIMEOUT_S = 10.0
_TURN_S = 0.01
_TRUNCATED = KafkaError(KafkaError._LOG_TRUNCATION).str()
_OTHER = {KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION}


class LogLookup:
    """Asks with short-lived clients; raises BatchAbortedError when brokers do not answer."""

    def __init__(self, settings: Settings) -> None:
        self._app, self._output = settings.app, settings.output.topic
        self._properties = {
            **reader_properties(settings),
            "debug": DEBUG,
            "log_level": 7,  # that of the lines about ids
            "queued.min.messages": 1,  # one record says that a log was not cut off
            "isolation.level": "read_uncommitted",  # and one of an open transaction does, too
        }

    def look(self, topics: Iterable[str]) -> InputLogs:
        """Return what brokers say of these topics now; one that is missing is left out."""
        ids = _Heard()
        places: list[Where] = []
        with self._consumer(ids) as consumer:
            places += [where for topic in topics for where in _places(consumer, topic)]
            positions = [TopicPartition(*where, OFFSET_END) for where in places]
            consumer.assign(positions)
            consumer.pause(positions)
            give_up_s = time.monotonic() + ANSWER_TIMEOUT_S
            # Brokers too old for ids of topics have epochs, and an id comes before its epochs.
            while any(ids.epoch(where) is None for where in places):
                if time.monotonic() > give_up_s:
                    break
                consumer.poll(_TURN_S)
        epochs: dict[str, dict[int, int]] = {}
        for where in places:
            epoch = ids.epoch(where)
            epochs.setdefault(where[0], {}).update({} if epoch is None else {where[1]: epoch})
        known = {topic: ids.known(topic) for topic in epochs}
        return InputLogs(
            app=self._app,
            output=self._output,
            cluster=ids.cluster,
            topics={topic: found for topic, found in known.items() if found is not None},
            epochs=epochs,
        )

    def cut(self, anchors: Anchors) -> dict[Where, str]:
        """Return the partitions whose log was cut off below their anchor, and what was said."""
        cut: dict[Where, str] = {}
        positions = {
            where: TopicPartition(*where, offset, leader_epoch=epoch)
            for where, (offset, epoch) in anchors.items()
        }
        with self._consumer(_Heard()) as consumer:
            consumer.assign([TopicPartition(*where, at) for where, (at, _) in anchors.items()])
            consumer.pause([*positions.values()])
            give_up_s = time.monotonic() + ANSWER_TIMEOUT_S
            for position in positions.values():
                _seek(consumer, position, give_up_s)
            consumer.resume([*positions.values()])
            waiting = set(positions)
            while waiting:
                if time.monotonic() > give_up_s:
                    raise _unanswered(f"{min(waiting)[0]}/{min(waiting)[1]}: no answer in time")
                message = consumer.poll(_TURN_S)
                if message is None:
                    continue
                where, error = place_of(message), message.error()
                if error is not None and error.code() in _OTHER and _TRUNCATED in error.str():
                    cut[where] = describe(error)
                # What retention has removed is Spark's to say: it reads there.
                if error is None or error.code() in {*_OTHER, KafkaError._PARTITION_EOF}:
                    waiting.discard(where)
        return cut

    @contextmanager
    def _consumer(self, ids: TopicIds) -> Iterator[Consumer]:
        consumer = build(Consumer, self._properties, ids)
        try:
            yield consumer
        except KafkaException as error:
            raise _unanswered(describe(error.args[0])) from error
        finally:
            consumer.close()


class _Heard(TopicIds):
    """Takes the lines of a client, as its logger."""

    def log(self, _level: int, _form: str, *parts: Any) -> None:
        if parts:
            self.hear(str(parts[-1]))


def _places(consumer: Consumer, topic: str) -> list[Where]:
    found = consumer.list_topics(topic, timeout=ANSWER_TIMEOUT_S).topics[topic]
    return [] if found.error is not None else [(topic, one) for one in sorted(found.partitions)]


def _seek(consumer: Consumer, position: TopicPartition, give_up_s: float) -> None:
    """Seek with an epoch, at which the client asks the leader; fetching has to have begun."""
    while True:
        try:
            consumer.seek(position)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE or time.monotonic() > give_up_s:
                raise
            consumer.poll(_TURN_S)
        else:
            return


def _unanswered(why: str) -> BatchAbortedError:
    return BatchAbortedError(f"which logs the input topics have is not known: {why}")
