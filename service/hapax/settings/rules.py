"""Rules that two settings must keep together. Each problem is one sentence with both values.

Those of logins, certificates and clusters are in connection_rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.core.formats import WITH_REGISTRY
from hapax.core.identity import id_source
from hapax.core.span import WORDS
from hapax.settings.base import Problem
from hapax.settings.connection_rules import (
    claim_store_problems,
    registry_problems,
    security_problems,
    target_problems,
)
from hapax.settings.redaction import hidden
from hapax.settings.value_types import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.settings.model import Settings

_TRANSACTION_INTERVAL: Final = "HAPAX_TRANSACTION__INTERVAL"
_TRANSACTION_TIMEOUT: Final = "HAPAX_TRANSACTION__TIMEOUT"
_SESSION_TIMEOUT: Final = "HAPAX_GROUP__SESSION_TIMEOUT"
_POLL_INTERVAL: Final = "HAPAX_GROUP__MAX_POLL_INTERVAL"
_WATCHDOG: Final = "HAPAX_WATCHDOG__TIMEOUT"
_CLAIM: Final = "HAPAX_DEDUP__TTL"
_ID: Final = "HAPAX_DEDUP__ID"
_CALL: Final = "HAPAX_CALL__TIMEOUT"
_INPUT: Final = "HAPAX_INPUT__TOPICS"
_INPUT_FORMAT: Final = "HAPAX_INPUT__FORMAT"
_OUTPUT: Final = "HAPAX_OUTPUT__TOPIC"
_OUTPUT_FORMAT: Final = "HAPAX_OUTPUT__FORMAT"
_SCHEMA: Final = "HAPAX_OUTPUT__SCHEMA"
_DEAD_LETTER: Final = "HAPAX_DEAD_LETTER__TOPIC"
_DATAFRAME: Final = "HAPAX_SPARK__DATAFRAME"
_CHECKPOINT: Final = "HAPAX_SPARK__CHECKPOINT"
_SINK: Final = "--sink"
_RETRY_TOPIC: Final = "HAPAX_RETRY__TOPIC"
_RETRY_LATER: Final = "HAPAX_RETRY__LATER"
_RETRY_DELAY: Final = "HAPAX_RETRY__DELAY"
_RETRY_DELAY_MAX: Final = "HAPAX_RETRY__DELAY_MAX"
_REGISTRY: Final = "HAPAX_REGISTRY__"
_URL: Final = f"{_REGISTRY}URL"
_BINARY: Final = ("avro", "protobuf")


def broken_rules(settings: Settings) -> Iterator[Problem]:
    yield from _times(settings)
    yield from _dataframe(settings)
    yield from _later_tries(settings)
    yield from _membership(settings)
    yield from _span(settings)
    yield from _topics(settings)
    yield from security_problems(settings.kafka.security, "HAPAX_KAFKA__")
    yield from target_problems(settings)
    yield from claim_store_problems(settings.dedup)
    yield from _formats(settings)
    yield from registry_problems(settings.registry)


def _span(settings: Settings) -> Iterator[Problem]:
    start, end = settings.input.start, settings.input.end
    if end is not None and start in {"latest", "refuse"}:
        yield Problem(
            ("HAPAX_INPUT__START", "HAPAX_INPUT__END"),
            f"HAPAX_INPUT__START={start} leaves nothing before HAPAX_INPUT__END={end}: start at"
            " earliest, at a time, or at offsets",
        )


def _times(settings: Settings) -> Iterator[Problem]:
    interval = (_TRANSACTION_INTERVAL, settings.transaction.interval_ms)
    transaction = (_TRANSACTION_TIMEOUT, settings.transaction.timeout_ms)
    session = (_SESSION_TIMEOUT, settings.group.session_timeout_ms)
    poll = (_POLL_INTERVAL, settings.group.max_poll_interval_ms)
    watchdog = (_WATCHDOG, settings.watchdog.timeout_ms)
    claim = (_CLAIM, settings.dedup.ttl_ms)
    # Unset, it follows the poll interval: nothing that could be wrong. What a worker may do depends
    # on the form of its transform, too (``call_problems``).
    tasks = settings.engine == "spark"
    call = (_CALL, settings.call.timeout_ms or 0 if tasks else 0)
    rules = (
        (call, poll, "a task that says nothing for so long is cancelled, its call with it"),
        (interval, transaction, "the brokers would abort the transaction of a full batch"),
        (
            transaction,
            session,
            "the transaction of a dead process must be over before another gets its partitions",
        ),
        (session, poll, "the Kafka client accepts nothing else"),
        (transaction, watchdog, "a transaction must be able to end before the process is ended"),
        (
            watchdog,
            poll,
            "a process that hangs must be ended before it loses its partitions for being slow",
        ),
        (poll, claim, "a claim must outlive the batch it was made for"),
    )
    # A DataFrame pipeline is no member of a group: none of the group's times is used.
    grouped = settings.spark.dataframe is None
    for shorter, longer, why in rules:
        used = grouped or {session, poll}.isdisjoint((shorter, longer))
        used = used and (longer is not claim or settings.dedup.enabled)
        if used and shorter[1] >= longer[1]:
            yield _not_shorter(shorter, longer, why)


def call_problems(settings: Settings) -> Iterator[Problem]:
    """Yield what is wrong for a worker whose thread makes the calls itself, one at a time.

    It polls between them. All other calls are made on other threads, and may take any time.
    """
    call = (_CALL, settings.call.timeout_ms or 0)
    poll = (_POLL_INTERVAL, settings.group.max_poll_interval_ms)
    if call[1] >= poll[1]:
        why = (
            "while a plain function is called, one at a time, nothing attends to the group, and a"
            " call that is legal would cost the process its partitions"
        )
        yield _not_shorter(call, poll, why)


def _not_shorter(shorter: tuple[str, int], longer: tuple[str, int], why: str) -> Problem:
    return Problem(
        (shorter[0], longer[0]),
        f"{shorter[0]}={duration_text(shorter[1])} must be shorter than "
        f"{longer[0]}={duration_text(longer[1])}: {why}; lower the first or raise the second",
    )


def _membership(settings: Settings) -> Iterator[Problem]:
    if settings.group.membership == "static" and settings.group.protocol == "consumer":
        yield Problem(
            ("HAPAX_GROUP__MEMBERSHIP", "HAPAX_GROUP__PROTOCOL"),
            "HAPAX_GROUP__MEMBERSHIP=static does not go with HAPAX_GROUP__PROTOCOL=consumer: a "
            "killed process could not come back under its name; set the first to dynamic or the "
            "second to classic",
        )


def _topics(settings: Settings) -> Iterator[Problem]:
    inputs, output = ",".join(settings.input.topics), settings.output.topic
    dead_letter = settings.dead_letter.topic
    for name, topic in ((_OUTPUT, output), (_DEAD_LETTER, dead_letter)):
        if topic in settings.input.topics and not settings.elsewhere:
            yield Problem(
                (_INPUT, name),
                f"{name}={topic} is one of {_INPUT}={inputs}: the service would read its own "
                "output in an endless loop; choose another topic",
            )
    if dead_letter == output:
        yield Problem(
            (_OUTPUT, _DEAD_LETTER),
            f"{_DEAD_LETTER}={dead_letter} is also {_OUTPUT}={output}: readers of the output "
            "would take dead letters for results; choose another topic for one of them",
        )


def _dataframe(settings: Settings) -> Iterator[Problem]:
    if settings.app.endswith(_SINK):
        yield Problem(
            ("HAPAX_APP",),
            f"HAPAX_APP={settings.app} ends in {_SINK}, which names the group that holds the "
            "marker of a DataFrame pipeline: choose another name",
        )
    pipeline = settings.spark.dataframe
    if pipeline is None:
        return
    if settings.engine != "spark":
        yield Problem(
            (_DATAFRAME, "HAPAX_ENGINE"),
            f"{_DATAFRAME}={pipeline} needs HAPAX_ENGINE=spark, which is {settings.engine}: set "
            "the engine, or use HAPAX_TRANSFORM",
        )
    yield from _checkpoint(settings)
    for name, given, instead in _meaningless(settings):
        if given is not None:
            yield Problem(
                (_DATAFRAME, name),
                f"{name}={given} does not go with {_DATAFRAME}={pipeline}: {instead}",
            )


def _checkpoint(settings: Settings) -> Iterator[Problem]:
    checkpoint, master = settings.spark.checkpoint, settings.spark.master
    if checkpoint is None:
        yield Problem(
            (_DATAFRAME, _CHECKPOINT),
            f"{_DATAFRAME}={settings.spark.dataframe} needs {_CHECKPOINT}, which is unset: its "
            "positions and its state live there, so name a folder or an address that outlives "
            "this process",
        )
    # ``file:///`` says that others see it.
    elif not master.startswith("local") and "://" not in checkpoint:
        yield Problem(
            (_CHECKPOINT, "HAPAX_SPARK__MASTER"),
            f"{_CHECKPOINT}={hidden(checkpoint)} is a folder of this machine, which the executors "
            f"of HAPAX_SPARK__MASTER={hidden(master)} do not see: name shared storage with its "
            "scheme, like s3a://bucket/orders (a volume that all of them mount is written file:///)",
        )


def _meaningless(settings: Settings) -> Iterator[tuple[str, object, str]]:
    yield (
        "HAPAX_TRANSFORM",
        settings.transform,
        "the pipeline is the business rule; call the other from it, or unset one of them",
    )
    yield (
        "HAPAX_DEDUP__REDIS_URL",
        "***" if settings.dedup.enabled else None,
        "rows have no claims; use dropDuplicatesWithinWatermark in the pipeline",
    )
    yield (
        _DEAD_LETTER,
        settings.dead_letter.topic,
        "a row that fails has no input record; let the pipeline give bad rows a topic column",
    )
    yield (
        "HAPAX_INPUT__START",
        None if settings.input.start in WORDS else settings.input.start,
        "positions of a query are in its checkpoint; run the span in the records form",
    )
    yield (
        "HAPAX_INPUT__END",
        settings.input.end,
        "a query has no end in time; use HAPAX_STOP_AFTER__AT_END, or the records form",
    )
    yield (
        "HAPAX_STOP_AFTER__RECORDS",
        settings.stop_after.records,
        "a query stops between micro-batches only; use HAPAX_STOP_AFTER__AT_END",
    )
    yield (
        "HAPAX_KAFKA__SECURITY__OAUTH_MSK_REGION",
        settings.kafka.security.oauth_msk_region,
        "Kafka's Java client signs no requests; use SCRAM or a certificate",
    )
    yield (
        "HAPAX_GUARANTEE",
        None if "spark" in settings.mode.engines else settings.guarantee,
        "its only guarantee is exactly_once; Spark's own Kafka sink is at least once",
    )


def _later_tries(settings: Settings) -> Iterator[Problem]:
    retry, topic = settings.retry, settings.retry_topic
    if retry.delay_ms > retry.delay_max_ms:
        yield Problem(
            (_RETRY_DELAY, _RETRY_DELAY_MAX),
            f"{_RETRY_DELAY}={duration_text(retry.delay_ms)} must not be longer than "
            f"{_RETRY_DELAY_MAX}={duration_text(retry.delay_max_ms)}: lower the first or raise the "
            "second",
        )
    if topic is None:
        return
    setting = _RETRY_TOPIC if retry.topic else _RETRY_LATER
    if settings.engine != "worker":
        yield Problem(
            (setting, "HAPAX_ENGINE"),
            f"{setting} needs HAPAX_ENGINE=worker, which is {settings.engine}: nothing there reads "
            "records back when they are due; remove it, or choose the worker",
        )
    if settings.fast == "on":
        yield Problem(
            (setting, "HAPAX_FAST"),
            f"{setting} does not go with HAPAX_FAST=on: records that may wait take the path in "
            "Python; set HAPAX_FAST=auto",
        )
    others = dict.fromkeys(settings.input.topics, _INPUT)
    others[settings.output.topic] = _OUTPUT
    if settings.dead_letter.topic:
        others[settings.dead_letter.topic] = _DEAD_LETTER
    if topic in others:
        yield Problem(
            (_RETRY_TOPIC, others[topic]),
            f"{_RETRY_TOPIC}={topic} is also in {others[topic]}: records that wait need a topic of "
            "their own; choose another one",
        )


def _formats(settings: Settings) -> Iterator[Problem]:
    registry, output = settings.registry, settings.output
    for name, value in ((_INPUT_FORMAT, settings.input.format), (_OUTPUT_FORMAT, output.format)):
        if value in WITH_REGISTRY and registry.url is None:
            yield Problem(
                (name, _URL),
                f"{name}={value} needs {_URL}, which is unset: name the registry, or choose bytes"
                " or json",
            )
        if value != "bytes" and settings.spark.dataframe is not None:
            yield Problem(
                (name, _DATAFRAME),
                f"{name}={value} is for functions of records: a DataFrame decodes its values itself"
                " (from_avro, from_json); unset one of them",
            )
    if output.format in WITH_REGISTRY:
        yield from _subjects(settings)
    if settings.input.reader_schema is not None and settings.input.format != "avro":
        yield Problem(
            ("HAPAX_INPUT__READER_SCHEMA", _INPUT_FORMAT),
            f"HAPAX_INPUT__READER_SCHEMA is set but {_INPUT_FORMAT}={settings.input.format} does"
            " not use it: choose avro, or remove it",
        )
    first = settings.dedup.id[0]
    if settings.input.format in _BINARY and "json" in id_source(first).kind.split("+"):
        yield Problem(
            (_ID, _INPUT_FORMAT),
            f"{_ID} begins with {first}, which can match nothing: values of {_INPUT_FORMAT}="
            f"{settings.input.format} are no JSON. Begin with a header or the key",
        )


def _subjects(settings: Settings) -> Iterator[Problem]:
    registry, schema = settings.registry, settings.output.schema_file
    if registry.subjects != "topic" and schema is None:
        yield Problem(
            (f"{_REGISTRY}SUBJECTS", _SCHEMA),
            f"{_REGISTRY}SUBJECTS={registry.subjects} needs {_SCHEMA}, which is unset: the subject"
            " is named after the record in that schema",
        )
    if registry.auto_register and schema is None:
        yield Problem(
            (f"{_REGISTRY}AUTO_REGISTER", _SCHEMA),
            f"{_REGISTRY}AUTO_REGISTER=true needs {_SCHEMA}, which is unset: name the file with the"
            " schema to register",
        )
