"""What must be there before the first record is read: brokers, topics, partitions.

``hapax doctor`` judges the same needs: it has more facts, and a verdict and a fix for each. The
start judges what one query of metadata says, in one sentence for each problem.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from hapax.cluster.cluster_state import Address, BrokerAnswers
from hapax.kafka.admin.topics import topic_settings
from hapax.kafka.connection import access, bootstrap, speaks_tls, told
from hapax.kafka.errors import FORBIDDEN, UNKNOWN_TOPIC, describe
from hapax.kafka.properties import admin_properties, build
from hapax.kafka.read.offsets_client import reader_properties
from hapax.processing.retry_later import COMPACTED, LEVELS, create_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hapax.settings import Settings

BROKERS_TIMEOUT_S = 1.5
CONSUMER_PROTOCOL, KIP_848 = "ConsumerGroupHeartbeat", 1
"""The request of consumer groups, and its version from which on brokers serve them. Kafka 3.9 lists
version 0, of the preview; a member of such a group gets no partition and no error (measured)."""
_LINE = re.compile(r"(\S+): +ApiKey (\w+) \(\d+\) Versions \d+\.\.(\d+)")
_LINES_MAX, _ERRORS_MAX = 100_000, 20
_NOISE = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE")
_HINTS = ("security.protocol", "SSL", "SASL")
"""Words by which an error of the transport says more than that no broker answers."""
_VERSIONS_TIMEOUT_S = 2.0
_ABSENT = FORBIDDEN | UNKNOWN_TOPIC | {KafkaError.TOPIC_EXCEPTION}


class KafkaPreflight:
    """Queries brokers as often as it is called; nothing is created or consumed."""

    def __init__(
        self, settings: Settings, list_topics: Callable[[float], Any], *, outputs: bool = False
    ) -> None:
        """Connect to nothing. ``outputs``: query their cluster, where it is another one."""
        self._outputs = outputs
        self._setting = "HAPAX_OUTPUT__KAFKA" if outputs else "HAPAX_KAFKA"
        if outputs:
            settings = target_settings(settings)
        self._settings = settings
        self._list_topics = list_topics
        self._servers = settings.kafka.bootstrap_servers
        self._served = False

    def look(self) -> BrokerAnswers:
        """Look once. Takes milliseconds, a second where nothing listens, six in the worst case."""
        found = bootstrap(self._servers)
        away = told(found)
        if all(address.problem for address in found.values()):
            unknown = all(address.unknown for address in found.values())
            return BrokerAnswers(away, self._unanswered(away), refused=unknown)
        try:
            metadata = self._list_topics(BROKERS_TIMEOUT_S)
        except KafkaException:
            if tls := self._unencrypted(found):
                return BrokerAnswers(away, self._unanswered(tls), refused=True)
            why = access(self._settings)
            if why.text and why.refused:
                return BrokerAnswers(away, self._unanswered(why.text), refused=True)
            away = f"{away}; {why.text}" if why.suspect else away
            return BrokerAnswers(away, self._unanswered(away), suspect=why.suspect, open=True)
        unserved = self._unserved()
        return BrokerAnswers(
            problem=unserved,
            refused=bool(unserved),
            absent=tuple(self._absent(metadata.topics)),
            cluster=metadata.cluster_id or None,
        )

    def _unanswered(self, reason: str) -> str:
        return (
            f"{self._setting}__BOOTSTRAP_SERVERS={self._servers}: no broker answered ({reason});"
            " check address, port, protocol and credentials"
        )

    def _unserved(self) -> str:
        """Return that the brokers do not serve the group protocol; a member would never know."""
        if self._settings.group.protocol != "consumer" or self._served or self._outputs:
            return ""
        apis = request_versions(self._settings)
        self._served = bool(apis)
        if not apis or not protocol_unserved(self._settings, apis):
            return ""
        return (
            "HAPAX_GROUP__PROTOCOL=consumer: a broker does not serve that protocol (KIP-848, from"
            " Kafka 4.0), and the group would get no partition; set HAPAX_GROUP__PROTOCOL=classic,"
            " or upgrade the brokers"
        )

    def _absent(self, topics: Mapping[str, Any]) -> Iterator[str]:
        unknown = "does not exist or may not be read"
        for topic, setting in required_topics(self._settings).items():
            found: Any = topics.get(topic)
            missing = not found or (found.error is not None and found.error.code() in _ABSENT)
            count = 0 if missing else len(found.partitions)
            if topic == self._settings.retry_topic and count < LEVELS:
                has = f"has {count} partitions" if count else unknown
                yield (
                    f"{setting}: topic {topic} {has}; later tries need {LEVELS}, one for each "
                    f"length of wait: {create_command(topic, existing=bool(count))}"
                )
            elif missing:
                yield f"{setting}: topic {topic} {unknown}; create it or fix the name"
            elif topic == self._settings.retry_topic:
                told = topic_settings(reader_properties(self._settings), {topic}).get(topic, {})
                if "compact" in (policy := told.get("cleanup.policy", "")):
                    yield (
                        f"{setting}: topic {topic} has cleanup.policy={policy}: {COMPACTED}; set it"
                        " to delete"
                    )

    def _unencrypted(self, found: Mapping[str, Address]) -> str:
        protocol = self._settings.kafka.security.protocol
        if "ssl" in protocol:
            return ""
        tls = [place for place, one in found.items() if not one.problem and speaks_tls(place)]
        wrong = f"{self._setting}__SECURITY__PROTOCOL={protocol} does not"
        return f"{', '.join(tls)} speaks TLS, and {wrong}" if tls else ""


def target_settings(settings: Settings) -> Settings:
    target = settings.target
    nothing = target.input.model_copy(update={"topics": ()})
    here = target.output.kafka.model_copy(update={"bootstrap_servers": None})
    written = target.output.model_copy(update={"kafka": here})
    unclaimed = target.dedup.model_copy(update={"redis_url": None})
    return target.model_copy(update={"input": nothing, "output": written, "dedup": unclaimed})


def output_topics(settings: Settings) -> tuple[str, ...]:
    if settings.elsewhere:
        return ()
    more = (settings.dead_letter.topic, settings.retry_topic)
    return (settings.output.topic, *(topic for topic in more if topic))


def required_topics(settings: Settings) -> dict[str, str]:
    topics = dict.fromkeys(settings.input.topics, "HAPAX_INPUT__TOPICS")
    topics |= dict.fromkeys(output_topics(settings), "HAPAX_DEAD_LETTER__TOPIC")
    if not settings.elsewhere:
        topics[settings.output.topic] = "HAPAX_OUTPUT__TOPIC"
    if settings.retry_topic:
        topics[settings.retry_topic] = "HAPAX_RETRY__TOPIC"
    return topics


def protocol_unserved(settings: Settings, apis: Mapping[str, int]) -> bool:
    joins = settings.group.protocol == "consumer"
    return joins and apis.get(CONSUMER_PROTOCOL, -1) < KIP_848


def request_versions(settings: Settings) -> dict[str, int]:
    """Return the highest version of each request that every broker serves; {}: not known."""
    log = ApiVersionsLog()
    client = telling_client(reader_properties(settings), log)
    try:
        client.list_topics(timeout=_VERSIONS_TIMEOUT_S)
    except KafkaException:
        return {}
    client.poll(0)
    return log.apis


def telling_client(properties: Mapping[str, Any], log: ApiVersionsLog) -> AdminClient:
    """Return a client that reports to ``log`` what the brokers serve, and why it cannot connect."""
    telling = {
        **admin_properties(properties),
        "error_cb": log.error,
        "debug": "feature",
        "log_level": 7,  # the level of the lines about versions
    }
    return build(AdminClient, telling, log.logger)


class ApiVersionsLog(logging.Handler):
    """What a client logs while it connects: the versions of requests, and why it cannot.

    The client asks every broker for its versions, and says what it heard only in its log
    (``debug=feature``). A version shows the age of a broker that has no other way to say it.

    ``logger`` and ``error`` are for the client. Both are called by its ``poll``.
    """

    def __init__(self) -> None:
        super().__init__()
        self._versions: dict[str, dict[str, int]] = {}
        self._lines = 0
        self.errors: list[str] = []
        # Of its own, not one of the process: nothing else hears it.
        self.logger = logging.Logger("hapax-doctor", logging.DEBUG)  # noqa: LOG001
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines += 1
        found = _LINE.search(record.getMessage()) if self._lines < _LINES_MAX else None
        if found is not None:
            broker, name, version = found.groups()
            self._versions.setdefault(broker, {})[name] = int(version)

    def error(self, error: KafkaError) -> None:
        """Keep an error that belongs to no call: a refused login, a broken TLS handshake."""
        text = describe(error)
        if text not in self.errors and len(self.errors) < _ERRORS_MAX:
            self.errors.append(text)

    @property
    def causes(self) -> list[str]:
        """The errors that say more than that no broker answers."""
        return [
            each
            for each in self.errors
            if not each.startswith(_NOISE) or any(hint in each for hint in _HINTS)
        ]

    @property
    def apis(self) -> dict[str, int]:
        names = {name for versions in self._versions.values() for name in versions}
        return {
            name: min(versions.get(name, -1) for versions in self._versions.values())
            for name in sorted(names)
        }
