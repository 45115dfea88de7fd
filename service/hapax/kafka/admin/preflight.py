"""What must be there before the first record is read: brokers, topics, partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from hapax.core.cluster_state import CONSUMER_PROTOCOL, KIP_848, BrokerAnswers
from hapax.core.retry_levels import LEVELS, create_command
from hapax.kafka.admin.answers import request_versions
from hapax.kafka.connection import access, bootstrap, speaks_tls, told
from hapax.kafka.errors import FORBIDDEN, UNKNOWN_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hapax.core.cluster_state import Address
    from hapax.settings import Settings

BROKERS_TIMEOUT_S = 1.5
_ABSENT = FORBIDDEN | UNKNOWN_TOPIC | {KafkaError.TOPIC_EXCEPTION}


class KafkaPreflight:
    """Looks as often as it is told to; nothing is created or consumed."""

    def __init__(
        self, settings: Settings, list_topics: Callable[[float], Any], *, outputs: bool = False
    ) -> None:
        """Connect to nothing. ``outputs``: look at their cluster, where it is another one."""
        self._outputs = outputs
        self._setting = "HAPAX_OUTPUT__KAFKA" if outputs else "HAPAX_KAFKA"
        self._here = settings.elsewhere is False
        if outputs:
            settings = settings.target
        self._settings = settings
        self._list_topics = list_topics
        self._servers = settings.kafka.bootstrap_servers
        self._served = False

    def sentence(self, reason: str) -> str:
        """Return the one sentence about brokers that are not to be had."""
        return (
            f"{self._setting}__BOOTSTRAP_SERVERS={self._servers}: no broker answered ({reason});"
            " check address, port, protocol and credentials"
        )

    def look(self) -> BrokerAnswers:
        """Look once. Takes milliseconds, a second where nothing listens, six in the worst case."""
        found = bootstrap(self._servers)
        if all(address.problem for address in found.values()):
            unknown = all(address.unknown for address in found.values())
            refusals = (self.sentence(told(found)),) if unknown else ()
            return BrokerAnswers(told(found), refusals)
        try:
            metadata = self._list_topics(BROKERS_TIMEOUT_S)
        except KafkaException:
            if tls := self._unencrypted(found):
                return BrokerAnswers(told(found), (self.sentence(tls),))
            why = access(self._settings)
            refusals = (self.sentence(why.text),) if why.text and why.refused else ()
            away = f"{told(found)}; {why.text}" if why.suspect else told(found)
            return BrokerAnswers(away, refusals, why.suspect, open=True)
        return BrokerAnswers(
            refusals=self._unserved(),
            absent=self._absent(metadata.topics),
            cluster=metadata.cluster_id or None,
        )

    def _unserved(self) -> tuple[str, ...]:
        """Return that the brokers do not serve the group protocol; a member would never know."""
        if self._settings.group.protocol != "consumer" or self._served or self._outputs:
            return ()
        apis = request_versions(self._settings)
        self._served = bool(apis)
        if not apis or apis.get(CONSUMER_PROTOCOL, -1) >= KIP_848:
            return ()
        return (
            (
                "HAPAX_GROUP__PROTOCOL=consumer: a broker does not serve that protocol (KIP-848, "
                "from Kafka 4.0), and the group would get no partition; set "
                "HAPAX_GROUP__PROTOCOL=classic, or upgrade the brokers"
            ),
        )

    def _unencrypted(self, found: Mapping[str, Address]) -> str:
        """Say that a listener wants TLS and the client speaks none: it just hangs up."""
        protocol = self._settings.kafka.security.protocol
        if "ssl" in protocol:
            return ""
        tls = [place for place, one in found.items() if not one.problem and speaks_tls(place)]
        wrong = f"{self._setting}__SECURITY__PROTOCOL={protocol} does not"
        return f"{', '.join(tls)} speaks TLS, and {wrong}" if tls else ""

    def _absent(self, topics: Any) -> tuple[str, ...]:
        settings = self._settings
        wanted: dict[str, str] = {}
        if not self._outputs:
            wanted = dict.fromkeys(settings.input.topics, "HAPAX_INPUT__TOPICS")
        if self._outputs or self._here:
            wanted[settings.output.topic] = "HAPAX_OUTPUT__TOPIC"
            if settings.dead_letter.topic:
                wanted[settings.dead_letter.topic] = "HAPAX_DEAD_LETTER__TOPIC"
        absent = {
            topic: f"{setting}: topic {topic} does not exist or may not be read; create it or fix "
            "the name"
            for topic, setting in wanted.items()
            if _is_absent(topics, topic)
        }
        return (*absent.values(), *_retry_topic(settings, topics))


def _is_absent(topics: Any, topic: str) -> bool:
    return topic not in topics or (
        topics[topic].error is not None and topics[topic].error.code() in _ABSENT
    )


def _retry_topic(settings: Settings, topics: Any) -> Iterator[str]:
    """Yield what is wrong with the topic in which records wait for a later try."""
    topic = settings.retry_topic
    if topic is None:
        return
    count = 0 if _is_absent(topics, topic) else len(topics[topic].partitions)
    if count < LEVELS:
        found = f"has {count} partitions" if count else "does not exist or may not be read"
        yield (
            f"HAPAX_RETRY__TOPIC: topic {topic} {found}; later tries need {LEVELS}, one for each "
            f"length of wait: {create_command(topic, existing=count > 0)}"
        )
