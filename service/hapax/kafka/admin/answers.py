"""What brokers answer, as facts: to the admin client, in the client's own lines, to a trial."""

from __future__ import annotations

import logging
import re
import time
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Producer,
)
from confluent_kafka.admin import AdminClient

from hapax.core.cluster_state import Address, ConsumerGroup, GroupMember, Partition, Topic
from hapax.kafka.connection import probe
from hapax.kafka.errors import FORBIDDEN, describe, transactional_error
from hapax.kafka.properties import admin_properties, build
from hapax.kafka.read.offsets_client import reader_properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from concurrent.futures import Future

    from hapax.settings import Settings

ANSWER_TIMEOUT_S = 3.0
TIMEOUT_MS = 2_147_000_000
"""Nearly the longest that a request can say (the client adds a little to it); brokers allow 15
minutes unless configured otherwise."""
_LINE = re.compile(r"(\S+): +ApiKey (\w+) \(\d+\) Versions \d+\.\.(\d+)")
_LINES_MAX, _ERRORS_MAX = 100_000, 20
_NOISE = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE")
_HINTS = ("security.protocol", "SSL", "SASL")
"""Words by which an error of the transport says more than that no broker answers."""
_VERSIONS_TIMEOUT_S = 2.0


def waited(answer: Future[Any], until_s: float) -> tuple[Any, str | None]:
    """Wait for an answer; return it, or None and why there is none."""
    try:
        return answer.result(max(0.0, until_s - time.monotonic())), None
    except KafkaException as error:
        return None, describe(error.args[0])
    except (TimeoutError, FutureTimeoutError):
        return None, f"no answer within {ANSWER_TIMEOUT_S:.0f} s"


def listeners_of(metadata: Any) -> dict[int, Address]:
    places = {number: f"{each.host}:{each.port}" for number, each in metadata.brokers.items()}
    reached = probe(places.values())
    return {number: reached[place] for number, place in sorted(places.items())}


def topic_of(answer: Future[Any], settings: dict[str, str], until_s: float) -> Topic:
    found, why = waited(answer, until_s)
    if found is None:
        return Topic(problem=why, settings=settings)
    partitions = {
        each.id: Partition(
            leader=-1 if each.leader is None else each.leader.id,
            replicas=tuple(node.id for node in each.replicas),
            in_sync=tuple(node.id for node in each.isr),
        )
        for each in found.partitions
    }
    return Topic(
        partitions=partitions, settings=settings, operations=names_of(found.authorized_operations)
    )


def group_of(found: Any) -> ConsumerGroup:
    members = [
        GroupMember(
            client_id=each.client_id,
            host=each.host,
            static_name=each.group_instance_id,
            topics=tuple(sorted({one.topic for one in each.assignment.topic_partitions})),
            partitions=len(each.assignment.topic_partitions),
        )
        for each in found.members
    ]
    consumer = found.type == ConsumerGroupType.CONSUMER
    return ConsumerGroup(
        state=ConsumerGroupState(found.state).name,
        protocol="consumer" if consumer else "classic",
        assignor=found.partition_assignor or "",
        members=tuple(members),
        operations=names_of(found.authorized_operations),
    )


def names_of(operations: Iterable[Any] | None) -> tuple[str, ...] | None:
    return None if operations is None else tuple(sorted(each.name for each in operations))


def values_of(entries: Mapping[str, Any] | None) -> dict[str, str]:
    return {
        name: entry.value
        for name, entry in (entries or {}).items()
        if entry.value is not None and not entry.is_sensitive
    }


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


class UntoldError(Exception):
    """The broker did not say."""


class _Silent:
    """Takes the client's lines: that its own trial is refused is no news for a terminal.

    ``log_level`` does not keep them back: a refused registration is fatal to a producer, and the
    client writes such lines whatever the level.
    """

    def log(self, *_line: object) -> None: ...


def check_transactional_id_acl(properties: Mapping[str, Any], transactional_id: str) -> str:
    """Return why an id may not be used, empty when it may; no owner is fenced.

    Raises UntoldError.

    A producer asks for its id with a timeout that no broker grants. The broker checks rights
    first, then at the timeout, and only then at the id: so it says either "not allowed" or
    "timeout too long", and the owner of the id is not fenced (Kafka:
    KafkaApis.handleInitProducerIdRequest, TransactionCoordinator.handleInitProducerId).

    Never call it where ``transaction.max.timeout.ms`` may be as long as TIMEOUT_MS: there the
    producer would get the id, and fence its owner.
    """
    asked = {
        **properties,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": TIMEOUT_MS,
        "log_level": 0,
    }
    producer = build(Producer, asked, _Silent())
    try:
        # Connected, it finds the coordinator at once; otherwise a timer of 500 ms runs.
        producer.list_topics(timeout=ANSWER_TIMEOUT_S)
        producer.init_transactions(ANSWER_TIMEOUT_S)
    except KafkaException as exception:
        error = transactional_error(exception)
        if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return ""
        if error.code() in FORBIDDEN:
            return describe(error)
        raise UntoldError(describe(error)) from exception
    return ""


# -- which requests the brokers serve ------------------------------------------------------------


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
