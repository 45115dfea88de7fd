"""Kafka's ids of cluster and topics, what topics take, who is in a group, and what a start needs.

Topics of another cluster may have the same names (mirrored topics, a DNS name that leads elsewhere,
staging next to production), and offsets that mean other records. Brokers return the id of their
cluster with each answer about metadata (KIP-78); it is kept in the metadata of every committed
offset.

Brokers, topics and partitions must be there before the first record is read. ``hapax doctor``
judges the same needs: it has more facts, and a verdict and a fix for each. The start judges what
one query of metadata says, in one sentence for each problem.
"""

from __future__ import annotations

import logging
import math
import re
import time
from contextlib import closing, suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic, ResourceType

from hapax.cluster.cluster_state import Address, BrokerAnswers
from hapax.cluster.topic_rules import RowNeeds, TopicRules, TopicTakes, row_problems
from hapax.core.errors import HapaxError, PreflightError
from hapax.kafka.client_log import kafkas_id
from hapax.kafka.connection import access, addressed, bootstrap, no_broker, speaks_tls, told
from hapax.kafka.errors import FORBIDDEN, UNKNOWN_TOPIC, describe, of_group
from hapax.kafka.properties import (
    APART,
    admin_properties,
    build,
    consumer_properties,
    producer_properties,
)
from hapax.kafka.read.offsets_client import BlockingOffsets, reader_properties
from hapax.processing.retry_later import COMPACTED, LEVELS, create_command

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from concurrent.futures import Future

    from hapax.core.records import TopicPartition
    from hapax.settings import Settings

ANSWER_TIMEOUT_S, IDS_TIMEOUT_S = 5.0, 30.0
SET_BYTES = 70
"""What a set of one message adds to it."""
_REST_S = 0.1
_NO_TOPIC = UNKNOWN_TOPIC | {KafkaError.TOPIC_EXCEPTION}


def cluster_id(settings: Settings) -> str:
    """Return the id of the cluster that answers now; raise PreflightError when none does."""
    with closing(BlockingOffsets(settings)) as client:
        found = client.cluster_id()
    if not found:
        raise PreflightError("the brokers do not return the id of their cluster: they are too old")
    return found


def topic_ids(settings: Settings, topics: Collection[str] | None = None) -> dict[str, str | None]:
    """Return ids of existing topics; None: brokers have none. PreflightError: no answer.

    ``topics``: default: those that the settings read.
    """
    admin = _admin(reader_properties(settings))
    asked = TopicCollection(list(settings.read_topics if topics is None else topics))
    answers = admin.describe_topics(asked, request_timeout=IDS_TIMEOUT_S)
    found: dict[str, str | None] = {}
    for topic, answer in answers.items():
        try:
            found[topic] = kafkas_id(str(answer.result(IDS_TIMEOUT_S).topic_id))
        except KafkaException as error:
            if error.args[0].code() not in UNKNOWN_TOPIC:
                raise PreflightError(
                    f"HAPAX_KAFKA__BOOTSTRAP_SERVERS: the id of topic {topic} cannot be read:"
                    f" {describe(error.args[0])}"
                ) from error
        except TimeoutError as error:
            raise PreflightError(f"the id of topic {topic} was not returned in time") from error
    return found


def absent_topics(properties: Mapping[str, Any], names: Collection[str], wait_s: float) -> set[str]:
    """Return the names that no topic has, also after waiting so long for one; it creates none.

    One that may not be described is not among them. Raises KafkaException when no broker answers.
    """
    admin, asked = _admin(properties), TopicCollection(list(names))
    until_s = time.monotonic() + wait_s
    while True:
        answers = admin.describe_topics(asked, request_timeout=ANSWER_TIMEOUT_S)
        codes = {name: _code(answer) for name, answer in answers.items()}
        gone = {name for name, code in codes.items() if code in _NO_TOPIC}
        if not gone or time.monotonic() >= until_s:
            return gone
        time.sleep(_REST_S)


def _code(answer: Future[Any]) -> int:
    try:
        answer.result(ANSWER_TIMEOUT_S + _REST_S)
    except KafkaException as error:
        code: int = error.args[0].code()
        if code in _NO_TOPIC | FORBIDDEN:
            return code
        raise
    return KafkaError.NO_ERROR


def topic_settings(
    properties: Mapping[str, Any], topics: Collection[str]
) -> dict[str, dict[str, str]]:
    """Return the settings of topics; of one that may not be read, or without an answer, nothing."""
    asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    found, admin = {}, _admin(properties)  # it is to live until the answers arrive
    answers = admin.describe_configs(asked, request_timeout=ANSWER_TIMEOUT_S)
    for resource, answer in answers.items():
        with suppress(KafkaException, TimeoutError):
            found[resource.name] = values_of(answer.result(ANSWER_TIMEOUT_S))
    return found


def values_of(entries: Mapping[str, Any] | None) -> dict[str, str]:
    return {
        name: entry.value
        for name, entry in (entries or {}).items()
        if entry.value is not None and not entry.is_sensitive
    }


def empty_topic(settings: Settings, topic: str) -> None:
    """Delete a topic and create it as it was, without records; it gets another id.

    Compacted topics take no deletion of their records. Raises HapaxError: it may be gone then.
    """
    admin = _admin(reader_properties(settings))
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        partitions = admin.list_topics(topic, timeout=IDS_TIMEOUT_S).topics[topic].partitions
        entries = admin.describe_configs([resource])[resource].result(IDS_TIMEOUT_S)
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        config = {name: one.value for name, one in entries.items() if one.source == own}
        new = NewTopic(topic, len(partitions), len(partitions[0].replicas), config=config)
        admin.delete_topics([topic], operation_timeout=IDS_TIMEOUT_S)[topic].result()
        until_s = time.monotonic() + IDS_TIMEOUT_S
        while True:
            try:
                admin.create_topics([new], operation_timeout=IDS_TIMEOUT_S)[topic].result()
            except KafkaException as error:  # its deletion takes a while
                still = error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
                if not still or time.monotonic() > until_s:
                    raise
                time.sleep(_REST_S)
            else:
                return
    except (KafkaException, TimeoutError) as error:
        why = describe(error.args[0]) if isinstance(error, KafkaException) else str(error)
        raise HapaxError(f"topic {topic} cannot be deleted and created again: {why}") from error


def _admin(properties: Mapping[str, Any]) -> AdminClient:
    return build(AdminClient, {**admin_properties(properties), "log_level": 0}, None)


def refused_rows(settings: Settings, needs: Mapping[str, RowNeeds]) -> list[str]:
    """Return what topics would refuse of rows. Raises PreflightError when no broker answers."""
    found = {topic: topic_takes(settings, topic) for topic in needs}
    there = {topic: takes for topic, takes in found.items() if takes.partitions}
    return row_problems(needs, there, SET_BYTES, int(time.time() * 1000))


def topic_takes(settings: Settings, topic: str) -> TopicTakes:
    """Ask what a topic takes; no partitions: it is missing, or may not be read.

    The size is not known where messages are compressed. Raises PreflightError: no broker answers.
    """
    properties = producer_properties(settings, transactional=False)
    try:
        # All topics: asking for one makes some brokers create it.
        found = _admin(properties).list_topics(timeout=ANSWER_TIMEOUT_S).topics.get(topic)
    except KafkaException as error:
        raise no_broker(settings, error) from error
    if found is None or found.error is not None:
        return TopicTakes(0, None)
    told = topic_settings(properties, [topic]).get(topic, {})
    bytes_max = told.get("max.message.bytes")
    if properties.get("compression.type", properties.get("compression.codec", "none")) != "none":
        bytes_max = None
    count = len(found.partitions)
    return TopicTakes(count, None if bytes_max is None else int(bytes_max), TopicRules.of(told))


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


# -- Whether all that is fit for a start -----------------------------------------------------------


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
                command = addressed(create_command(topic, existing=bool(count)), self._settings)
                yield (
                    f"{setting}: topic {topic} {has}; later tries need {LEVELS}, one for each "
                    f"length of wait: {command}"
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
