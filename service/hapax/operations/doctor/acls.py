"""The least rights of one pipeline, from its settings.

What each request needs: Kafka's documentation, "Authorization and ACLs", protocol table. That
they suffice, and that the mandatory ones are all needed, is tested against a broker.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from hapax.claims.store import kind_of
from hapax.cluster.cluster_state import Right
from hapax.core.errors import ConfigurationError
from hapax.kafka.produce.micro_batch import sink_lane_names, sink_names
from hapax.kafka.produce.standalone import replay_id
from hapax.kafka.produce.target import target_prefixes
from hapax.kafka.properties import APART, lane_id, transactional_id
from hapax.processing.transform import load_form

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hapax.claims.kind import StoreRights
    from hapax.settings import Settings

CLUSTER = "kafka-cluster"
_PREFIXED = "PREFIXED"


def state_topics(settings: Settings) -> tuple[str, ...]:
    """Return the topic that keeps the state of the transform, where it keeps any.

    Its module is imported, and nothing of it is called; none where that fails.
    """
    if settings.engine != "worker":
        return ()
    with suppress(ConfigurationError):
        return (settings.state_topic,) if load_form(settings.transform).stateful else ()
    return ()


def kafka_rights(
    settings: Settings, outputs: Iterable[str] = (), *, state: Iterable[str] = ()
) -> tuple[Right, ...]:
    """Return what this pipeline's user must be granted, and what it may be; mandatory ones first.

    Where outputs go to another cluster than that of the input, these are the rights on the latter.
    ``outputs``: topics that the business code names itself, which no setting names; ``state``: what
    keeps its state.
    """
    rights = list(_reading(settings))
    if settings.elsewhere:
        return _sorted([*rights, *_settings_seen(settings.input.topics)])
    written = _written(settings, outputs)
    written |= dict.fromkeys(state, "changes of state are written")
    rights += [Right("TOPIC", topic, "READ", "state is read back") for topic in state]
    rights += _writing(settings, written)
    rights += _readers(settings)
    read = {one.name for one in rights if (one.resource, one.operation) == ("TOPIC", "READ")}
    rights += _looking(settings, [topic for topic in written if topic not in read])
    return _sorted(rights)


def target_rights(settings: Settings) -> tuple[Right, ...]:
    """Return the rights on the cluster of the outputs, where it is another one than the input's."""
    prefixes = target_prefixes(settings.app)
    written, each_has_one = _written(settings), "transactions, one id for each input partition"
    rights = [Right("TOPIC", topic, "WRITE", reason) for topic, reason in written.items()]
    rights += [
        Right("TOPIC", settings.output.topic, "READ", "the progress is an offset of this topic"),
        Right("GROUP", prefixes.group, "READ", "the progress is committed here", _PREFIXED),
        Right("TRANSACTIONAL_ID", prefixes.transactional_id, "WRITE", each_has_one, _PREFIXED),
    ]
    rights += _readers(settings)
    if settings.dead_letter.topic:
        listed = "hapax dead-letters list and show read it"
        rights.append(Right("TOPIC", settings.dead_letter.topic, "READ", listed, optional=True))
    return _sorted([*rights, *_settings_seen(written)])


def _sorted(rights: list[Right]) -> tuple[Right, ...]:
    return tuple(sorted(rights, key=lambda right: right.optional))


def _written(settings: Settings, outputs: Iterable[str] = ()) -> dict[str, str]:
    written = {settings.output.topic: "outputs are written"}
    written |= dict.fromkeys(outputs, "outputs that the business code sends here are written")
    if settings.dead_letter.topic:
        written[settings.dead_letter.topic] = "dead letters are written"
    if settings.retry_topic is not None:
        written[settings.retry_topic] = "records wait here for a later try"
    return written


class ClusterRights(NamedTuple):
    """The rights on one cluster. ``servers``: its bootstrap addresses."""

    servers: str
    rights: tuple[Right, ...]


def cluster_rights(settings: Settings) -> tuple[ClusterRights, ...]:
    rights = kafka_rights(settings, state=state_topics(settings))
    here = ClusterRights(settings.kafka.bootstrap_servers, rights)
    if not settings.elsewhere:
        return (here,)
    there = ClusterRights(settings.target.kafka.bootstrap_servers, target_rights(settings))
    return here, there


def store_rights(settings: Settings) -> StoreRights | None:
    url = settings.dedup.claims_url
    return None if url is None else kind_of(url).rights(url, settings.app)


def _reading(settings: Settings) -> Iterator[Right]:
    for topic in settings.input.topics:
        yield Right("TOPIC", topic, "READ", "records are read, and their offsets committed")
    if settings.retry_topic is not None:
        yield Right("TOPIC", settings.retry_topic, "READ", "records that waited are read back")
    if settings.spark.dataframe is None:
        yield Right("GROUP", settings.app, "READ", "the group is joined, its offsets committed")
    else:
        group = sink_names(settings.app).group
        yield Right("GROUP", group, "READ", "the marker of the micro-batch is committed here")
        if settings.spark.publish == "parallel":
            groups = sink_lane_names(settings.app, 0).group.removesuffix("0")
            yield Right("GROUP", groups, "READ", "the markers of the sink's lanes", _PREFIXED)
        yield Right("TOPIC", settings.output.topic, "READ", "the marker is an offset of this topic")


def _writing(settings: Settings, written: dict[str, str]) -> Iterator[Right]:
    for topic, reason in written.items():
        yield Right("TOPIC", topic, "WRITE", reason)
    if not settings.mode.transactional:
        reason = "brokers before 2.8 want it of a producer without transactions"
        yield Right("CLUSTER", CLUSTER, "IDEMPOTENT_WRITE", reason, optional=True)
        return
    for name, pattern, reason in _transactional_ids(settings):
        yield Right("TRANSACTIONAL_ID", name, "WRITE", reason, pattern)


def _transactional_ids(settings: Settings) -> Iterator[tuple[str, str, str]]:
    if settings.spark.dataframe is not None:
        yield sink_names(settings.app).transactional_id, "LITERAL", "transactions of the sink"
        if settings.spark.publish == "parallel":
            lanes = sink_lane_names(settings.app, 0).transactional_id.removesuffix("0")
            yield lanes, _PREFIXED, "transactions of the sink's tasks, one id for each lane"
    elif settings.group.membership == "dynamic":
        # Names that change with every start cannot be granted one by one.
        reason = "transactions of every process, whatever its name"
        yield f"{settings.app}{APART}", _PREFIXED, reason
    else:
        name = transactional_id(settings)
        yield name, "LITERAL", "transactions of this process; each other instance needs its own"
        if settings.engine == "spark":
            lanes = lane_id(settings, 0).removesuffix("0")
            yield lanes, _PREFIXED, "transactions of the tasks, one id for each lane"


def _looking(settings: Settings, written: list[str]) -> Iterator[Right]:
    reason = "hapax audit, trace and dead-letters read it"
    yield from (Right("TOPIC", topic, "READ", reason, optional=True) for topic in written)
    if settings.dead_letter.topic:
        replays = "hapax dead-letters replay writes here"
        for topic in settings.input.topics:
            yield Right("TOPIC", topic, "WRITE", replays, optional=True)
        yield Right("TRANSACTIONAL_ID", replay_id(settings.app), "WRITE", replays, optional=True)
    reason = "hapax transactions list reads the states of all transactions there"
    yield Right("TOPIC", "__transaction_state", "READ", reason, optional=True)
    topics = dict.fromkeys([*settings.input.topics, settings.output.topic, *written])
    yield from _settings_seen(topics)


def _readers(settings: Settings) -> Iterator[Right]:
    for group in settings.telemetry.readers or ():
        yield Right("GROUP", group, "DESCRIBE", "its lag is a metric", optional=True)


def _settings_seen(topics: Iterable[str]) -> Iterator[Right]:
    reason = "retention and durability of the topic are seen by metrics, doctor and audit"
    for topic in topics:
        yield Right("TOPIC", topic, "DESCRIBE_CONFIGS", reason, optional=True)
    reason = "hapax doctor asks for brokers, features and log folders"
    yield Right("CLUSTER", CLUSTER, "DESCRIBE", reason, optional=True)
    reason = "hapax doctor reads the settings of the brokers"
    yield Right("CLUSTER", CLUSTER, "DESCRIBE_CONFIGS", reason, optional=True)
