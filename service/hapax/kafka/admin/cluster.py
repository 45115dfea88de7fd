"""What the brokers report about themselves, the topics and the group; nothing is joined or written.

Every step has its own short timeout, and what could not be had is said in ``untold``: an
examination of a dead cluster takes seconds, like one of a live cluster.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

from hapax.core.cluster_state import IN_SYNC_MIN, Address, ClusterState, ConsumerGroup, Topic
from hapax.core.errors import PreflightError
from hapax.core.partition_offsets import position
from hapax.kafka.admin.answers import (
    ANSWER_TIMEOUT_S,
    TIMEOUT_MS,
    ApiVersionsLog,
    UntoldError,
    check_transactional_id_acl,
    group_of,
    listeners_of,
    telling_client,
    topic_of,
    values_of,
    waited,
)
from hapax.kafka.admin.second_client import RequestError, value_in_file
from hapax.kafka.connection import probe
from hapax.kafka.errors import describe
from hapax.kafka.properties import admin_properties
from hapax.kafka.read.log_offsets import Logs
from hapax.kafka.read.neighbours import last_records, readers_at_rest
from hapax.kafka.read.offset_client import reader_properties
from hapax.kafka.read.range_reader import RangeReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Future

    from hapax.core.changes import Stuck
    from hapax.core.cluster_state import Log
    from hapax.core.records import TopicPartition
    from hapax.settings import Settings

METADATA_TIMEOUT_S = 4.0
NEXT_TIMEOUT_S = 2.0
PAUSE_S = 1.2
"""Between two looks at the last stable offsets: longer than ordinary transactions."""
INTERNAL = ("__consumer_offsets", "__transaction_state")

Ages = tuple[int, ...]


def look_at_kafka(
    settings: Settings,
    outputs: Iterable[str],
    ids: Iterable[str],
    group: str,
    ages_of: Callable[[str, Mapping[str, str]], Ages],
    pause_s: float = PAUSE_S,
) -> ClusterState:
    """Return all that can be had within about ten seconds.

    ``outputs``: topics that are written. ``ids``: transactional ids that are used. ``group``: that
    has the offsets. ``ages_of``: for a topic and its settings, ages in ms; the offsets where they
    begin are looked up. Raises ConfigurationError for properties that the client does not take.
    """
    found = tuple(probe(settings.kafka.bootstrap_servers.split(",")).values())
    look = _Look(settings, (*settings.input.topics, *outputs), ids, group)
    if all(address.problem for address in found):
        return ClusterState(
            bootstrap=found, problem="none of the bootstrap addresses can be reached"
        )
    return look.all(found, ages_of, pause_s)


class _Look:
    """One pass over a cluster."""

    def __init__(
        self, settings: Settings, topics: Iterable[str], ids: Iterable[str], group: str
    ) -> None:
        self._settings = settings
        self._group = group
        self._topics = list(dict.fromkeys(topics))
        self._ids = list(ids)
        self._client_log = ApiVersionsLog()
        base = {**reader_properties(settings), "client.id": f"{settings.app}-doctor"}
        self._properties = base
        self._admin = telling_client(base, self._client_log)
        self._untold: dict[str, str] = {}
        self._overridden: dict[int, str] = {}

    def all(
        self,
        bootstrap: tuple[Address, ...],
        ages_of: Callable[[str, Mapping[str, str]], Ages],
        pause_s: float,
    ) -> ClusterState:
        try:
            metadata = self._admin.list_topics(timeout=METADATA_TIMEOUT_S)
        except KafkaException as error:
            self._admin.poll(0)
            why = "; ".join(self._client_log.causes) or describe(error.args[0])
            return ClusterState(bootstrap=bootstrap, problem=why)
        listeners = listeners_of(metadata)
        if all(each.problem for each in listeners.values()):
            return ClusterState(
                bootstrap=bootstrap,
                listeners=listeners,
                problem="no broker can be reached at the address that it advertises",
            )
        return self._described_by(metadata, bootstrap, listeners, ages_of, pause_s)

    def _described_by(
        self,
        metadata: Any,
        bootstrap: tuple[Address, ...],
        listeners: dict[int, Address],
        ages_of: Callable[[str, Mapping[str, str]], Ages],
        pause_s: float,
    ) -> ClusterState:
        """Return what brokers that can be reached say."""
        alive = {number for number, each in listeners.items() if each.problem is None}
        topics, settings, group = self._described(alive, metadata)
        with closing(self._logs(topics, alive, ages_of, pause_s)) as logs:
            with ThreadPoolExecutor(1) as pool:
                tried = pool.submit(self._try_ids, settings, group)
                offsets = logs.look()
            ids = tried.result()
        self._admin.poll(0)
        return ClusterState(
            bootstrap=bootstrap,
            listeners=listeners,
            apis=self._client_log.apis,
            controller=metadata.controller_id,
            cluster_id=metadata.cluster_id,
            topics=topics,
            settings=settings,
            overridden=self._overridden,
            group=group,
            logs=offsets,
            ids=ids,
            undecodable=self._undecodable(offsets),
            **self._neighbours(topics, offsets),
            untold=self._untold | logs.untold,
        )

    def _neighbours(
        self, topics: Mapping[str, Topic], logs: Mapping[TopicPartition, Log]
    ) -> dict[str, Any]:
        """Return who writes the inputs and who reads the outputs, as far as brokers answer."""
        known = {where: log.offsets for where, log in logs.items() if log.offsets is not None}
        first: Callable[..., Any] = partial(last_records, topics=topics)
        found = {}
        for name, ask in (("samples", first), ("readers", readers_at_rest)):
            try:
                found[name] = ask(self._settings, known)
            except (KafkaException, PreflightError, TimeoutError) as error:
                self._untold[name] = str(error) or "no answer in time"
        return found

    def _undecodable(self, logs: Mapping[TopicPartition, Log]) -> dict[TopicPartition, Stuck]:
        """Return sets that cannot be decoded and come next in their partition."""
        unread: dict[TopicPartition, tuple[int, int]] = {}
        for where, log in logs.items():
            if where[0] in self._settings.input.topics and log.offsets is not None:
                next_ = position(log.committed, log.offsets, self._settings.input.start)
                if next_ is not None and log.offsets.lag(next_) > 0:
                    unread[where] = (next_, log.offsets.last_stable)
        spans = RangeReader(self._settings)
        spans.firsts(unread, NEXT_TIMEOUT_S)
        return spans.undecodable

    def _described(
        self, alive: set[int], metadata: Any
    ) -> tuple[dict[str, Topic], dict[int, dict[str, str]], ConsumerGroup | None]:
        """Ask for everything at once, then wait for it with one deadline."""
        limit: dict[str, Any] = {"request_timeout": ANSWER_TIMEOUT_S}
        rights = {"include_authorized_operations": True, **limit}
        internal = [name for name in INTERNAL if name in metadata.topics]
        names = [*self._topics, *internal]
        wanted = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        configs = self._admin.describe_configs(wanted, **limit)
        brokers: dict[int, Future[Any]] = {}
        for number in sorted(alive):
            one = ConfigResource(ResourceType.BROKER, str(number))
            brokers[number] = self._admin.describe_configs([one], **limit)[one]
        described = self._admin.describe_topics(TopicCollection(names), **rights)
        group = self._admin.describe_consumer_groups([self._group], **rights)
        until_s = time.monotonic() + ANSWER_TIMEOUT_S + 0.5
        by_topic = {
            one.name: self._result(f"settings of topic {one.name}", answer, until_s)
            for one, answer in configs.items()
        }
        topics = {
            name: topic_of(answer, values_of(by_topic.get(name)), until_s)
            for name, answer in described.items()
        }
        told = {
            number: self._result(f"settings of broker {number}", answer, until_s) or {}
            for number, answer in brokers.items()
        }
        by_broker = {number: values_of(entries) for number, entries in told.items()}
        self._overridden = self._in_files(told)
        members = self._result("consumer group", group[self._group], until_s)
        return (
            topics,
            {number: values for number, values in by_broker.items() if values},
            None if members is None else group_of(members),
        )

    def _in_files(self, told: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
        """Return, by broker, the in-sync minimum of its file where another one is served."""
        found: dict[int, str] = {}
        for number, entries in told.items():
            served = entries.get(IN_SYNC_MIN)
            if served is None or served.source != ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value:
                continue
            try:
                value = value_in_file(self._settings, number, IN_SYNC_MIN)
            except RequestError as error:
                self._untold[f"{IN_SYNC_MIN} in the file on {number}"] = str(error)
            else:
                if value not in {None, served.value}:
                    found[number] = str(value)
        return found

    def _result(self, what: str, answer: Future[Any], until_s: float) -> Any:
        found, why = waited(answer, until_s)
        if why is not None:
            self._untold[what] = why
        return found

    def _try_ids(
        self, settings: Mapping[int, Mapping[str, str]], group: ConsumerGroup | None
    ) -> dict[str, str]:
        """Return why ids are refused, empty where not; only where trying fences no producer."""
        longest = [each.get("transaction.max.timeout.ms", "") for each in settings.values()]
        known = longest and all(each.isdecimal() and int(each) < TIMEOUT_MS for each in longest)
        if not (known or (group is not None and not group.members)):
            why = "transaction.max.timeout.ms is not known, and the service runs"
            self._untold |= {f"transactional id {name}": why for name in self._ids}
            return {}
        found = {}
        for name in self._ids:
            try:
                found[name] = check_transactional_id_acl(admin_properties(self._properties), name)
            except UntoldError as error:
                self._untold[f"transactional id {name}"] = str(error)
        return found

    def _logs(
        self,
        topics: Mapping[str, Topic],
        alive: set[int],
        ages_of: Callable[[str, Mapping[str, str]], Ages],
        pause_s: float,
    ) -> Logs:
        return Logs(
            self._properties,
            leaders={
                (name, number): partition.leader
                for name in self._topics
                for number, partition in topics[name].partitions.items()
                if partition.leader in alive
            },
            inputs=[
                (name, number)
                for name in self._settings.input.topics
                for number in topics[name].partitions
            ],
            ages_ms={name: ages_of(name, topics[name].settings) for name in self._topics},
            pause_s=pause_s,
        )
