"""Settings of the way of a record: topics, formats, ids, transform, dead letters, operation."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field, SecretStr

from hapax.core.formats import (
    AfterGrace,
    Format,
    Placement,
    RegistryOptions,
    Secret,
    SubjectNames,
)
from hapax.core.headers import VALUE_SCHEMA
from hapax.settings.base import SettingsGroup
from hapax.settings.kafka import TargetKafkaSettings
from hapax.settings.properties import SPARK_PROPERTIES
from hapax.settings.value_types import (
    ADDRESS,
    CLAIMS_URL,
    END,
    ERRORS,
    FUNCTION,
    GROUPS,
    HTTP_URLS,
    ID_SOURCES,
    PATH,
    PATHS,
    SECRET,
    START,
    TEXT,
    TOPIC,
    TOPICS,
    choice,
    duration,
    flag,
    share,
    whole,
)

OutputTimestamp = Literal["record", "now"]
Partitioner = Literal["murmur2", "consistent_random", "round_robin", "random"]
Publish = Literal["together", "parallel"]
Open = Literal["wait", "leave"]
OnOutage = Literal["pause", "pass"]
CallOrder = Literal["key", "none"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "console"]

_ATTEMPTS_MIN = 3
_OFFSET_MAX = (1 << 63) - 1
_WAIT_S: Final = 1.0
"""Longest wait of a call for a schema: waiting is no fault of the call's."""


class InputSettings(SettingsGroup):
    """What is read."""

    topics: Annotated[tuple[str, ...], TOPICS] = Field(
        description="Topics to read.", examples=["orders"]
    )
    start: Annotated[str, START] = Field(
        default="earliest",
        description="Where a group without offsets starts. earliest loses nothing; refuse is for "
        "pipelines that must never start over. A time, or an age: at the first record of that time "
        "or later.",
    )
    end: Annotated[str | None, END] = Field(
        default=None,
        description="Where the run ends, before the first record of that time or later, and exits "
        "with 0: a backfill. latest: at the ends that were there when the group began. The ends "
        "are looked up once and kept with the group's offsets, so a restart continues to the same. "
        "Unset: never.",
    )
    format: Annotated[Format, choice(Format)] = Field(
        default="bytes",
        description="What the values are: the function finds them decoded in `record.data`. avro, "
        "protobuf and json-schema need HAPAX_REGISTRY__URL and "
        "`pip install 'hapax-kafka[registry]'`.",
    )
    reader_schema: Annotated[str | None, PATH] = Field(
        default=None,
        description="File with the Avro schema that records are resolved to, whatever version "
        "wrote them. Unset: they are read as they were written.",
    )


class OutputSettings(SettingsGroup):
    """Where outputs go."""

    topic: Annotated[str, TOPIC] = Field(
        description="Topic of the outputs that name no topic themselves.", examples=["orders-clean"]
    )
    partitioner: Annotated[Partitioner, choice(Partitioner)] = Field(
        default="murmur2",
        description="How a key finds its partition. murmur2 is what Java producers do, so keys "
        "written by both meet in the same partition.",
    )
    timestamp: Annotated[OutputTimestamp, choice(OutputTimestamp)] = Field(
        default="record",
        description="Timestamp of outputs that name none themselves: that of their record, or the "
        "time of writing, for records whose timestamps the output topic would refuse "
        "(message.timestamp.before.max.ms, message.timestamp.after.max.ms).",
    )
    kafka: TargetKafkaSettings
    format: Annotated[Format, choice(Format)] = Field(
        default="bytes",
        description="What data that the function returns is encoded as. Values that are bytes are "
        "written as they are.",
    )
    schema_file: Annotated[str | None, PATH] = Field(
        default=None,
        alias="schema",
        description="File with the schema of the outputs, which the subject must have. Unset: the "
        "latest version of the subject.",
    )


class RegistrySettings(SettingsGroup):
    """Where schemas come from, for formats that have them."""

    url: Annotated[tuple[str, ...] | None, HTTP_URLS] = Field(
        default=None,
        repr=False,
        description="Schema registry with the API of Confluent's; of several, comma separated, "
        "each is asked until one answers.",
    )
    user: Annotated[str | None, TEXT] = Field(
        default=None, description="User of the registry, for basic authentication."
    )
    password: Annotated[SecretStr | None, SECRET] = Field(
        default=None, description="Password of that user."
    )
    token: Annotated[SecretStr | None, SECRET] = Field(
        default=None, description="Bearer token, in place of user and password."
    )
    ca_file: Annotated[str | None, PATH] = Field(
        default=None,
        description="PEM file of the authorities that may sign the registry's certificate. "
        "Unset: those of the system.",
    )
    certificate_file: Annotated[str | None, PATH] = Field(
        default=None,
        description="PEM file of the client certificate, for a registry that requires one.",
    )
    key_file: Annotated[str | None, PATH] = Field(
        default=None, description="PEM file of the certificate's private key."
    )
    key_password: Annotated[SecretStr | None, SECRET] = Field(
        default=None, description="Password of the private key."
    )
    timeout_ms: Annotated[int, duration("100ms", "30s")] = Field(
        default=5_000,
        alias="timeout",
        description="How long one answer of the registry may take before it counts as away.",
    )
    cache: Annotated[str | None, PATH] = Field(
        default=None,
        description="Folder in which schemas are kept once they were fetched, so that a start "
        "needs no registry. Unset: they are kept in memory alone.",
    )
    grace_ms: Annotated[int, duration("0ms", "24h")] = Field(
        default=60_000,
        alias="grace",
        description="How long a record waits for a schema id that the registry does not know: "
        "replicas of a registry learn of a new one late.",
    )
    after_grace: Annotated[AfterGrace, choice(AfterGrace)] = Field(
        default="hold",
        description="What becomes of it then: its partition waits on, or it is a dead letter.",
    )
    subjects: Annotated[SubjectNames, choice(SubjectNames)] = Field(
        default="topic",
        description="Subject of the outputs' schema: `<topic>-value`, the name of the record, or "
        "`<topic>-<record>`.",
    )
    auto_register: Annotated[bool, flag()] = Field(
        default=False,
        description="Whether the schema of HAPAX_OUTPUT__SCHEMA is registered where the subject "
        "does not have it; needs the right to write.",
    )
    placement: Annotated[Placement, choice(Placement)] = Field(
        default="prefix",
        description="Where outputs name their schema: five bytes before the value, or the header "
        f"`{VALUE_SCHEMA}`. Of inputs both are read.",
    )

    def options(self, call_ms: int | None) -> RegistryOptions:
        """Return the same as it travels to where calls are made; ``call_ms``: the longest call."""
        names = RegistryOptions.__struct_fields__
        given = {name: _travelling(getattr(self, name)) for name in names if name != "wait_s"}
        wait_s = _WAIT_S if call_ms is None else min(_WAIT_S, call_ms / 2000)
        return RegistryOptions(**given, wait_s=wait_s)


def _travelling(value: Any) -> Any:
    if not isinstance(value, SecretStr):
        return value
    return Secret(value.get_secret_value(), getattr(value, "path", None))


class DeadLetterSettings(SettingsGroup):
    """What happens to records that can never have outputs."""

    topic: Annotated[str | None, TOPIC] = Field(
        default=None, description="Topic for poison records. Unset: poison stops the service."
    )
    rate_max: Annotated[float, share()] = Field(
        default=0.10,
        description="The service stops when a larger share of records becomes dead letters: the "
        "cause is then not the records.",
    )
    records_min: Annotated[int, whole(1, 1_000_000_000)] = Field(
        default=1_000,
        description="The share is not judged before this many records, or the first poison would "
        "stop a service that has just started.",
    )


class DedupSettings(SettingsGroup):
    """How events that were sent twice are recognised."""

    @property
    def enabled(self) -> bool:
        return self.redis_url is not None

    @property
    def claims_url(self) -> str | None:
        """The address of the claim store, whose scheme selects it (hapax.claims.store)."""
        return None if self.redis_url is None else self.redis_url.get_secret_value()

    redis_url: Annotated[SecretStr | None, CLAIMS_URL] = Field(
        default=None,
        description="Claim store: redis://HOST:PORT/0, redis+sentinel://HOST:PORT,HOST:PORT/NAME "
        "or redis+cluster://HOST:PORT,HOST:PORT; with TLS rediss://, rediss+sentinel:// or "
        "rediss+cluster://. Unset: off, all other dedup settings are idle.",
    )
    ca_file: Annotated[str | None, PATH] = Field(
        default=None,
        description="PEM file of the authorities that may sign the claim store's certificate; "
        "needs a rediss:// address. Unset: those of the system.",
    )
    certificate_file: Annotated[str | None, PATH] = Field(
        default=None,
        description="PEM file of the client certificate, for a claim store that requires one.",
    )
    key_file: Annotated[str | None, PATH] = Field(
        default=None, description="PEM file of the certificate's private key."
    )
    key_password: Annotated[SecretStr | None, SECRET] = Field(
        default=None, description="Password of the private key."
    )
    id: Annotated[tuple[str, ...], ID_SOURCES] = Field(
        default=("cloudevents", "header:message-id"),
        description="Where to find the id of an event, in order. A record without one is "
        "processed and counted, never dropped.",
    )
    ttl_ms: Annotated[int, duration("1s", "365d")] = Field(
        default=86_400_000,
        alias="ttl",
        description="How long an id is remembered: longer than the sender may repeat an event, "
        "and than a record may wait in the input.",
    )
    on_outage: Annotated[OnOutage, choice(OnOutage)] = Field(
        default="pause",
        description="Without the claim store: hold the partitions, or continue and let "
        "duplicates of the sender pass.",
    )
    timeout_ms: Annotated[int, duration("10ms", "1m")] = Field(
        default=2_000,
        alias="timeout",
        description="How long one answer of the claim store may take before it counts as away.",
    )


class CallSettings(SettingsGroup):
    """Calls of the transform."""

    concurrency: Annotated[int, whole(1, 1_024)] = Field(
        default=1,
        description="Most calls at once. An async transform overlaps on an event loop; a plain "
        "function is called on as many threads, for which it must be safe.",
    )
    order: Annotated[CallOrder, choice(CallOrder)] = Field(
        default="key",
        description="key: records of one key are called one at a time, in input order. none: all "
        "calls overlap. Outputs are in input order either way.",
    )
    records_max: Annotated[int, whole(1, 10_000)] = Field(
        default=256,
        description="Longest list that a transform of lists (records: list[Record]) is given.",
    )

    timeout_ms: Annotated[int | None, duration("100ms", "24h")] = Field(
        default=None,
        alias="timeout",
        description="A coroutine that takes longer is cancelled, and its record becomes a dead "
        "letter with the reason timeout. Any other call that takes longer ends the process with "
        "exit code 8 and names the record, which is then called in a process of its own and "
        "becomes a dead letter when it hangs again. Longer than the slowest call that is legal. "
        "Unset: as long as HAPAX_GROUP__MAX_POLL_INTERVAL allows, and any time for calls that "
        "overlap.",
    )


class RetrySettings(SettingsGroup):
    """How often something is tried."""

    attempts: Annotated[
        int,
        whole(
            _ATTEMPTS_MIN,
            1_000,
            "a broker that restarts can fail two attempts of a record that is sound",
        ),
    ] = Field(
        default=_ATTEMPTS_MIN,
        description="Attempts of one batch or record, one after the other, before the culprit "
        "becomes a dead letter or waits for a later try.",
    )
    backoff_ms: Annotated[int, duration("0ms", "1s")] = Field(
        default=5,
        alias="backoff",
        description="Pause before the second of these calls of the transform; it doubles up to "
        "1s, and chance takes up to half of it. All later records wait as long.",
    )
    topic: Annotated[str | None, TOPIC] = Field(
        default=None,
        description="Topic in which records wait for a later try, which a transform asks for by "
        "RetryLater. Unset: the app's name and -retry when HAPAX_RETRY__LATER is set; else there "
        "are no later tries.",
    )
    later: Annotated[tuple[str, ...] | None, ERRORS] = Field(
        default=None,
        description="Types of exceptions after which a record is tried again later, by name or "
        "with their module, subclasses included: TimeoutError,shop.prices.Busy.",
    )
    later_attempts: Annotated[int, whole(1, 1_000)] = Field(
        default=8,
        description="Later tries of one record before it becomes a dead letter, whether the "
        "transform or the policy asked for them.",
    )
    delay_ms: Annotated[int, duration("1s", "24h")] = Field(
        default=10_000,
        alias="delay",
        description="Delay before the first later try by HAPAX_RETRY__LATER; it doubles with each "
        "one, and chance adds up to a tenth.",
    )
    delay_max_ms: Annotated[int, duration("1s", "24h")] = Field(
        default=3_600_000, alias="delay_max", description="Longest of these delays."
    )


class StopAfterSettings(SettingsGroup):
    """Bounded runs; HAPAX_INPUT__END is another."""

    records: Annotated[int | None, whole(1, _OFFSET_MAX)] = Field(
        default=None, description="Stop after this many input records."
    )
    at_end: Annotated[bool, flag()] = Field(
        default=False, description="Stop at the ends that the input partitions had at the start."
    )
    open: Annotated[Open, choice(Open)] = Field(
        default="wait",
        description="Where open transactions of the input hold back all that is left before the "
        "ends. wait: wait until they are decided. leave: stop before them, with exit code 0.",
    )
    open_timeout_ms: Annotated[int, duration("1s", "24h")] = Field(
        default=1_200_000,
        alias="open_timeout",
        description="How long it waits while none is decided, before exit code 1. Brokers abort "
        "what is open for longer than transaction.max.timeout.ms (15m unless set).",
    )


class ShutdownSettings(SettingsGroup):
    """How the service leaves."""

    timeout_ms: Annotated[int, duration("1s", "1h")] = Field(
        default=10_000,
        alias="timeout",
        description="How long a stop may take: finish or abort the batch, leave the group. The "
        "supervisor must wait longer before it kills.",
    )


class WatchdogSettings(SettingsGroup):
    """What ends a process that hangs."""

    timeout_ms: Annotated[int, duration("1s", "24h")] = Field(
        default=60_000,
        alias="timeout",
        description="A call that takes longer ends the process. Some client calls ignore their "
        "own timeout; the longest legal one was measured at 43s, in an outage of all brokers.",
    )


class TelemetrySettings(SettingsGroup):
    """What the service reports."""

    port: Annotated[int, whole(0, 65_535)] = Field(
        default=9464, description="Port of metrics, probes and status page; 0: any free one."
    )
    address: Annotated[str, TEXT] = Field(
        default="0.0.0.0",  # noqa: S104 - probes and scrapes come from outside of the container
        description="Address to listen on. The default is reachable from outside of the "
        "container, as probes and scrapes are.",
    )
    log_level: Annotated[LogLevel, choice(LogLevel)] = Field(
        default="info", description="Least level that is logged. info: one line per transaction."
    )
    log_format: Annotated[LogFormat, choice(LogFormat)] = Field(
        default="auto", description="auto: console on a terminal, json everywhere else."
    )
    lag_interval_ms: Annotated[int, duration("1s", "1h")] = Field(
        default=10_000,
        alias="lag_interval",
        description="How often log offsets are queried: lag in seconds, what retention is about "
        "to delete, transactions left open. A separate thread queries them.",
    )
    readers: Annotated[tuple[str, ...] | None, GROUPS] = Field(
        default=None,
        description="Other consumer groups, as of readers of the outputs, whose true lag is a "
        "metric: committed records that they have not read. One worker counts them, at each "
        "lag interval, on the cluster of the outputs. Unset: none.",
    )
    runbooks_url: Annotated[str, TEXT] = Field(
        default="https://hapax.example/docs",
        description="Where these pages are kept; the status page links to RUNBOOKS_URL/alerts.md "
        "and RUNBOOKS_URL/runbooks.md.",
    )
    tracing: Annotated[bool, flag()] = Field(
        default=False,
        description="One span per transaction, by OpenTelemetry. Needs hapax-kafka[tracing]; the "
        "standard OTEL_* variables say where spans go.",
    )


class SparkSettings(SettingsGroup):
    """How the pipeline runs with `HAPAX_ENGINE=spark`."""

    master: Annotated[str, ADDRESS] = Field(
        default="local[*]",
        repr=False,
        description="Where tasks run: local[N] within this container, or the address of a "
        "cluster (spark://host:port, k8s://https://host:port).",
    )
    properties: Annotated[dict[str, str], SPARK_PROPERTIES] = Field(
        default_factory=dict,
        repr=False,
        description="Further Spark properties. Those that would break the guarantee, or that "
        "have a setting of their own, are refused.",
        json_schema_extra={"default": "{}"},
    )
    ship: Annotated[tuple[str, ...] | None, PATHS] = Field(
        default=None,
        description="What goes to the executors of a cluster in addition to the module or package "
        "of the function: folders, .py, .zip and .egg files, and one packed environment "
        "(.tar.gz), whose Python they run then.",
    )
    executor_timeout_ms: Annotated[int, duration("1s", "1h")] = Field(
        default=30_000,
        alias="executor_timeout",
        description="How long a start waits for the master and the first executor of a cluster.",
    )
    lanes: Annotated[int | None, whole(1, 10_000)] = Field(
        default=None,
        description="How many tasks work at once; the partitions are spread over them. Unset: as "
        "many as Spark has cores.",
    )
    range_interval_ms: Annotated[int, duration("100ms", "10m")] = Field(
        default=2_000,
        alias="range_interval",
        description="How long one task works while records keep coming, in transactions of "
        "HAPAX_TRANSACTION__INTERVAL; then it reports, and another one takes its place, for which "
        "records wait some 0.1 s. Longer ranges cost less; on a cluster a stop waits for the "
        "running ones.",
    )
    dataframe: Annotated[str | None, FUNCTION] = Field(
        default=None,
        description="A function from DataFrame to DataFrame, run by Structured Streaming instead "
        "of HAPAX_TRANSFORM. Unset: records.",
    )
    checkpoint: Annotated[str | None, ADDRESS] = Field(
        default=None,
        repr=False,
        description="Where a pipeline keeps its positions and state: a folder or an address on "
        "durable storage. Required with HAPAX_SPARK__DATAFRAME; records need none.",
    )
    trigger_interval_ms: Annotated[int, duration("10ms", "24h")] = Field(
        default=1_000,
        alias="trigger_interval",
        description="Least time between two micro-batches of a pipeline.",
    )
    batch_records_max: Annotated[int, whole(1, 100_000_000)] = Field(
        default=100_000,
        description="Most input records of one micro-batch of a pipeline: what it writes must "
        "fit into one transaction.",
    )
    publish: Annotated[Publish, choice(Publish)] = Field(
        default="together",
        description="How a pipeline's micro-batch becomes visible: together, in one transaction of "
        "one producer; or parallel, in parts, by tasks of Spark with a transaction each.",
    )
    jars: Annotated[str | None, PATH] = Field(
        default=None,
        description="Folder with Spark's Kafka connector, for a pipeline. Unset: fetched once "
        "into the user's cache.",
    )
