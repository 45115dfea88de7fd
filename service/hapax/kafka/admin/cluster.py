"""What the brokers report about themselves, the topics and the group; nothing is joined or written.

Every step has its own short timeout, and what could not be had is said in ``untold``: an
examination of a dead cluster takes seconds, like one of a live cluster.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
)
from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

from hapax.cluster.cluster_state import (
    IN_SYNC_MIN,
    Address,
    ClusterState,
    ConsumerGroup,
    GroupMember,
    Log,
    Partition,
    ReaderAtRest,
    Topic,
    sample_of,
)
from hapax.cluster.group_start import client_of
from hapax.cluster.partition_offsets import LogOffsets, position
from hapax.core.errors import PreflightError
from hapax.core.offset_commit import CommittedMetadata, text_of
from hapax.kafka.admin.second_client import RequestError, value_in_file
from hapax.kafka.admin.topics import ApiVersionsLog, telling_client, values_of
from hapax.kafka.connection import probe
from hapax.kafka.errors import FORBIDDEN, describe, transactional_error
from hapax.kafka.properties import admin_properties, build
from hapax.kafka.read.group_start import offsets_of_groups
from hapax.kafka.read.offsets_client import LATEST, OffsetsClient, reader_properties
from hapax.kafka.read.range_reader import RangeReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hapax.cluster.cluster_state import LastRecords, Sampled
    from hapax.core.ports import Stuck
    from hapax.core.records import TopicPartition as Where
    from hapax.settings import Settings

ANSWER_TIMEOUT_S = 3.0
TIMEOUT_MS = 2_147_000_000
"""Nearly the longest that a request can say (the client adds a little to it); brokers allow 15
minutes unless configured otherwise."""
CALL_TIMEOUT_S, BUDGET_S = 2.0, 3.5
EACH_MAX, ALL_MAX, WITHIN_S = 50, 5_000, 2.0
"""Offsets of one partition, about as many of all, and for how long."""
METADATA_TIMEOUT_S = 4.0
NEXT_TIMEOUT_S = 2.0
PAUSE_S = 1.2
"""Between two queries of the last stable offsets: longer than ordinary transactions."""
INTERNAL = ("__consumer_offsets", "__transaction_state")


class Logs:
    """Queries offsets of a cluster once; ``untold``: by name why something was not answered."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        leaders: Mapping[Where, int],
        inputs: list[Where],
        ages_ms: Mapping[str, Ages],
    ) -> None:
        """``leaders``: of the partitions whose offsets are queried, each of which can be reached.

        ``inputs``: partitions whose committed offset is queried. ``ages_ms``: by topic, ages whose
        first offsets are queried.
        """
        self._deadline_s = time.monotonic() + BUDGET_S
        self._queries = OffsetsClient(properties, leaders=leaders, left_s=self._left_s)
        self._places = list(leaders)
        self._inputs = inputs
        self._ages_ms = ages_ms
        self.untold: dict[str, str] = {}
        self._clusters: dict[Where, str | None] = {}
        self._foreign: dict[Where, str] = {}

    def close(self) -> None:
        self._queries.close()

    def look(self) -> dict[Where, Log]:
        # The committed offset first, the ends after it: so an offset is never beyond its log.
        committed = self._committed()
        # The high watermark first, the stable end after it, and the stable end again at the very
        # end: a transaction that is seen open was open all the time.
        logs = self._queries.log_offsets(self._places)
        seen_s = time.monotonic()
        since = self._since(logs)
        later: dict[Where, int | None] = {}
        if any(log.last_stable_offset_lag for log in logs.values()):
            time.sleep(max(0.0, PAUSE_S - (time.monotonic() - seen_s)))
            later = self._queries.offsets(dict.fromkeys(self._places, LATEST), committed=True)
        for one in self._queries.take_errors():
            name = f"broker {one.leader}" if one.where is None else f"{one.where[0]}/{one.where[1]}"
            self.untold[f"offsets of {name}"] = describe(one.error)
        return {
            where: Log(
                offsets=logs.get(where),
                last_stable_later=later.get(where),
                committed=committed.get(where),
                since=since.get(where, {}),
                cluster_id=self._clusters.get(where),
                foreign=self._foreign.get(where),
            )
            for where in self._places
        }

    def _since(self, logs: Mapping[Where, LogOffsets]) -> dict[Where, dict[int, int]]:
        found: dict[Where, dict[int, int]] = {}
        now_ms, ages_ms = int(time.time() * 1000), self._ages_ms
        for rank in range(max((len(ages) for ages in ages_ms.values()), default=0)):
            ages = {name: ages[rank] for name, ages in ages_ms.items() if rank < len(ages)}
            wanted = {where: now_ms - ages[where[0]] for where in logs if where[0] in ages}
            for where, offset in self._queries.offsets(wanted).items():
                # No record is that young: then the age begins after all of them.
                at = logs[where].high_watermark if offset is None else offset
                found.setdefault(where, {})[ages[where[0]]] = at
        return found

    def _committed(self) -> dict[Where, int]:
        if not self._inputs:
            return {}
        try:
            answers = self._queries.group_offsets(self._inputs, self._left_s(), stable=False)
        except KafkaException as error:
            self.untold["committed offsets"] = describe(error.args[0])
            return {}
        found = {}
        for where, one in answers.items():
            if one.error is not None:
                self.untold["committed offsets"] = describe(one.error)
            elif one.offset >= 0:
                found[where] = one.offset
                beside = CommittedMetadata.of(one)
                self._clusters[where] = beside.cluster_id
                if beside == CommittedMetadata():
                    self._foreign[where] = client_of(text_of(one))
        return found

    def _left_s(self) -> float:
        return max(0.1, min(CALL_TIMEOUT_S, self._deadline_s - time.monotonic()))


# -- Programs around a pipeline: who writes its inputs, who reads its outputs -----------------


def last_records(
    settings: Settings, logs: Mapping[Where, LogOffsets], topics: Mapping[str, Topic]
) -> dict[str, LastRecords]:
    """Include aborted ones; raise PreflightError for an unreadable topic or record set."""
    each = max(1, min(EACH_MAX, ALL_MAX // max(1, len(logs))))
    spans = {
        where: (max(log.log_start, log.high_watermark - each), log.high_watermark)
        for where, log in logs.items()
        if where[0] in settings.input.topics
    }
    found: dict[str, list[Sampled]] = {topic: [] for topic, _number in spans}
    give_up_s = time.monotonic() + WITHIN_S
    for chunk in RangeReader(settings, "read_uncommitted").read(spans):
        for one, _readable in chunk:
            found[one.topic].append((one.partition, one.key, one.timestamp_ms))
        if time.monotonic() > give_up_s:
            break
    now_ms = int(time.time() * 1000)
    return {t: sample_of(seen, len(topics[t].partitions), now_ms) for t, seen in found.items()}


def readers_at_rest(
    settings: Settings, logs: Mapping[Where, LogOffsets]
) -> tuple[ReaderAtRest, ...]:
    """Return groups of others with nothing but markers and aborted records before them.

    Many clients commit one past the last record that they were given, and are never given what
    follows it. Raises KafkaException, PreflightError or TimeoutError: brokers do not answer so.
    """
    read, reader = settings.read_topics, RangeReader(settings)
    filled = [w for w, log in logs.items() if w[0] not in read and log.log_start < log.last_stable]
    before = [
        ReaderAtRest(group, *where, one.offset, logs[where].last_stable)
        for group, offsets in (offsets_of_groups(settings, filled) if filled else ())
        for one in offsets
        if logs[where := (one.topic, one.partition)].log_start
        < one.offset
        < logs[where].last_stable
        and CommittedMetadata.of(one) == CommittedMetadata()  # Hapax commits the very end
        and not group.startswith(f"{settings.app}--")  # markers of its own, in place of reading
    ]
    # The one that is furthest has no record before it, or none of them is at rest.
    furthest = {one[1:3]: one for one in sorted(before, key=lambda one: one.committed)}
    behind = reader.firsts({w: (one.committed, one.end) for w, one in furthest.items()}, WITHIN_S)
    ends = {where: furthest[where].committed for where, first in behind.items() if first is None}
    last = reader.firsts({where: (at - 1, at) for where, at in ends.items()}, WITHIN_S)
    return tuple(one for one in before if last.get(one[1:3]) and one.committed == ends[one[1:3]])


Ages = tuple[int, ...]


class ClusterLook(NamedTuple):
    """One query of a cluster, for about ten seconds at most. It can be pickled.

    outputs  topics that are written
    ids      transactional ids that are used
    group    that has the offsets
    ages_of  for a topic and its settings, ages in ms; the offsets where they begin are looked up
    """

    settings: Settings
    outputs: tuple[str, ...]
    ids: tuple[str, ...]
    group: str
    ages_of: Callable[[str, Mapping[str, str]], Ages]

    def state(self) -> ClusterState:
        """Raise ConfigurationError for properties that the client does not take."""
        found = tuple(probe(self.settings.kafka.bootstrap_servers.split(",")).values())
        look = _Look(self)
        if all(address.problem for address in found):
            problem = "none of the bootstrap addresses can be reached"
            return ClusterState(bootstrap=found, problem=problem)
        return look.all(found)


class _Look:
    def __init__(self, asked: ClusterLook) -> None:
        self._asked = asked
        self._settings = asked.settings
        self._topics = list(dict.fromkeys((*asked.settings.input.topics, *asked.outputs)))
        self._client_log = ApiVersionsLog()
        own = {"client.id": f"{asked.settings.app}-doctor"}
        self._properties = reader_properties(asked.settings) | own
        self._admin = telling_client(self._properties, self._client_log)
        self._untold: dict[str, str] = {}
        self._overridden: dict[int, str] = {}

    def all(self, bootstrap: tuple[Address, ...]) -> ClusterState:
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
        return self._described_by(metadata, bootstrap, listeners)

    def _described_by(
        self, metadata: Any, bootstrap: tuple[Address, ...], listeners: dict[int, Address]
    ) -> ClusterState:
        alive = {number for number, each in listeners.items() if each.problem is None}
        topics, settings, group = self._described(alive, metadata)
        with closing(self._logs(topics, alive)) as logs:
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

    def _neighbours(self, topics: Mapping[str, Topic], logs: Mapping[Where, Log]) -> dict[str, Any]:
        known = {where: log.offsets for where, log in logs.items() if log.offsets is not None}
        first: Callable[..., Any] = partial(last_records, topics=topics)
        found = {}
        for name, ask in (("samples", first), ("readers", readers_at_rest)):
            try:
                found[name] = ask(self._settings, known)
            except (KafkaException, PreflightError, TimeoutError) as error:
                self._untold[name] = str(error) or "no answer in time"
        return found

    def _undecodable(self, logs: Mapping[Where, Log]) -> dict[Where, Stuck]:
        unread: dict[Where, tuple[int, int]] = {}
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
        group = self._admin.describe_consumer_groups([self._asked.group], **rights)
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
        members = self._result("consumer group", group[self._asked.group], until_s)
        return (
            topics,
            {number: values for number, values in by_broker.items() if values},
            None if members is None else group_of(members),
        )

    def _in_files(self, told: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
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
            self._untold |= {f"transactional id {name}": why for name in self._asked.ids}
            return {}
        found = {}
        for name in self._asked.ids:
            try:
                found[name] = check_transactional_id_acl(admin_properties(self._properties), name)
            except UntoldError as error:
                self._untold[f"transactional id {name}"] = str(error)
        return found

    def _logs(self, topics: Mapping[str, Topic], alive: set[int]) -> Logs:
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
            ages_ms={one: self._asked.ages_of(one, topics[one].settings) for one in self._topics},
        )


def waited(answer: Future[Any], until_s: float) -> tuple[Any, str | None]:
    """Wait for an answer; return it, or None and why there is none."""
    try:
        return answer.result(max(0.0, until_s - time.monotonic())), None
    except KafkaException as error:
        return None, describe(error.args[0])
    except TimeoutError:
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
