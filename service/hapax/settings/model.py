"""All settings of one process."""

from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field, SecretStr

from hapax.core.formats import (
    AfterGrace,
    Format,
    FormatOptions,
    Placement,
    RegistryOptions,
    Secret,
    SubjectNames,
)
from hapax.core.span import WORDS, SpanWords
from hapax.settings.base import SettingsGroup, variables
from hapax.settings.kafka import (
    GroupSettings,
    KafkaSettings,
    TargetKafkaSettings,
    TransactionSettings,
)
from hapax.settings.properties import SPARK_PROPERTIES
from hapax.settings.value_types import (
    ADDRESS,
    CLAIMS_URL,
    END,
    ERRORS,
    FUNCTION,
    GROUPS,
    HTTP_URL,
    HTTP_URLS,
    ID_SOURCES,
    NAME,
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
    size,
    whole,
)

OutputTimestamp = Literal["record", "now"]
Partitioner = Literal["murmur2", "consistent_random", "round_robin", "random"]
Publish = Literal["together", "parallel"]
Open = Literal["wait", "leave"]
OnOutage = Literal["pause", "pass"]
CallOrder = Literal["key", "none"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "console", "ecs", "gcp"]

_ATTEMPTS = whole(
    3, 1_000, "a broker that restarts can fail two attempts of a record that is sound"
)
_OFFSET_MAX = (1 << 63) - 1
_WAIT_S: Final = 1.0
"""Longest wait of a call for a schema: waiting is no fault of the call's."""


class InputSettings(SettingsGroup):
    """What is read."""

    topics: Annotated[tuple[str, ...], TOPICS] = Field(examples=["orders"])
    """Topics to read."""
    start: Annotated[str, START] = "earliest"
    """Where a group without offsets starts. refuse: exit, for pipelines that must never start over.
    A time or age: at the first record of that time or later."""
    end: Annotated[str | None, END] = None
    """Where a backfill ends, before the first record of that time or later, with exit code 0.
    latest: at the ends when the group began. The ends are kept with the group's offsets, so a
    restart continues to the same."""
    format: Annotated[Format, choice(Format)] = "bytes"
    """How values are decoded, to `record.data`. avro, protobuf and json-schema need
    HAPAX_REGISTRY__URL and `pip install 'hapax-kafka[registry]'`."""
    reader_schema: Annotated[str | None, PATH] = None
    """File with the Avro schema that records are resolved to. Unset: they are read as they were
    written."""


class OutputSettings(SettingsGroup):
    """Where outputs go."""

    topic: Annotated[str, TOPIC] = Field(examples=["orders-clean"])
    """Topic of outputs that name none."""
    partitioner: Annotated[Partitioner, choice(Partitioner)] = "murmur2"
    """How a key finds its partition; murmur2 as Java producers do."""
    timestamp: Annotated[OutputTimestamp, choice(OutputTimestamp)] = "record"
    """Timestamp of outputs that name none: that of their record, or the time of writing, where the
    output topic would refuse the former (message.timestamp.before.max.ms,
    message.timestamp.after.max.ms)."""
    kafka: TargetKafkaSettings
    format: Annotated[Format, choice(Format)] = "bytes"
    """How data that the function returns is encoded; bytes are written as they are."""
    schema_file: Annotated[str | None, PATH] = Field(default=None, alias="schema")
    """File with the schema of the outputs, which the subject must have. Unset: the latest version
    of the subject."""


class RegistrySettings(SettingsGroup):
    """Where schemas come from, for formats that have them."""

    url: Annotated[tuple[str, ...] | None, HTTP_URLS] = Field(default=None, repr=False)
    """Schema registry with the API of Confluent's; several are asked until one answers."""
    user: Annotated[str | None, TEXT] = None
    """User for basic authentication."""
    password: Annotated[SecretStr | None, SECRET] = None
    """Password of that user."""
    token: Annotated[SecretStr | None, SECRET] = None
    """Bearer token, in place of user and password."""
    oauth_token_url: Annotated[str | None, HTTP_URL] = Field(default=None, repr=False)
    """OAuth 2.0 service that gives such tokens (client credentials)."""
    oauth_client_id: Annotated[str | None, TEXT] = None
    """Client there."""
    oauth_client_secret: Annotated[SecretStr | None, SECRET] = None
    """Secret of that client."""
    oauth_scope: Annotated[str | None, TEXT] = None
    """Scope of the tokens."""
    logical_cluster: Annotated[str | None, TEXT] = None
    """Confluent Cloud: the registry (`lsrc-…`) that a token is for."""
    identity_pool: Annotated[str | None, TEXT] = None
    """Confluent Cloud: the identity pool of a token."""
    ca_file: Annotated[str | None, PATH] = None
    """PEM file of the authorities for the registry's certificate. Unset: those of the system."""
    certificate_file: Annotated[str | None, PATH] = None
    """PEM file of the client certificate."""
    key_file: Annotated[str | None, PATH] = None
    """PEM file of its private key."""
    key_password: Annotated[SecretStr | None, SECRET] = None
    """Password of that key."""
    timeout_ms: Annotated[int, duration("100ms", "30s")] = 5_000
    """How long one answer may take before the registry counts as away."""
    cache: Annotated[str | None, PATH] = None
    """Folder in which fetched schemas are kept, so that a start needs no registry. Unset: in memory
    alone."""
    grace_ms: Annotated[int, duration("0ms", "24h")] = 60_000
    """How long a record waits for a schema that the registry does not know or denies."""
    after_grace: Annotated[AfterGrace, choice(AfterGrace)] = "hold"
    """What becomes of it then: its partition waits on, or it is a dead letter."""
    subjects: Annotated[SubjectNames, choice(SubjectNames)] = "topic"
    """Subject of the outputs' schema: `<topic>-value`, the name of the record, or
    `<topic>-<record>`."""
    auto_register: Annotated[bool, flag()] = False
    """Whether the schema of HAPAX_OUTPUT__SCHEMA is registered where its subject lacks it; needs
    the right to write."""
    placement: Annotated[Placement, choice(Placement)] = "prefix"
    """Where outputs name their schema: five bytes before the value, or the header
    `__value_schema_id`. Of inputs both are read."""

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

    topic: Annotated[str | None, TOPIC] = None
    """Topic for poison records. Unset: poison stops the service."""
    rate_max: Annotated[float, share()] = 0.10
    """The service stops when a larger share of records becomes dead letters."""
    records_min: Annotated[int, whole(1, 1_000_000_000)] = 1_000
    """The share is not judged before this many records."""


class DedupSettings(SettingsGroup):
    """How events that were sent twice are recognised."""

    @property
    def enabled(self) -> bool:
        return self.redis_url is not None

    @property
    def claims_url(self) -> str | None:
        """The address of the claim store, whose scheme selects it (hapax.claims.store)."""
        return None if self.redis_url is None else self.redis_url.get_secret_value()

    redis_url: Annotated[SecretStr | None, CLAIMS_URL] = None
    """Claim store: redis://HOST:PORT/0, redis+sentinel://HOST:PORT,HOST:PORT/NAME or
    redis+cluster://HOST:PORT,HOST:PORT; with TLS rediss://, rediss+sentinel:// or
    rediss+cluster://. Unset: off, all other dedup settings are idle."""
    ca_file: Annotated[str | None, PATH] = None
    """PEM file of the authorities for the claim store's certificate; needs a rediss:// address.
    Unset: those of the system."""
    certificate_file: Annotated[str | None, PATH] = None
    """PEM file of the client certificate."""
    key_file: Annotated[str | None, PATH] = None
    """PEM file of its private key."""
    key_password: Annotated[SecretStr | None, SECRET] = None
    """Password of that key."""
    id: Annotated[tuple[str, ...], ID_SOURCES] = ("cloudevents", "header:message-id")
    """Where to find the id of an event, in order. A record without one is processed and counted,
    never dropped."""
    ttl_ms: Annotated[int, duration("1s", "365d")] = 86_400_000
    """How long an id is remembered: longer than the sender may repeat an event, and than a record
    may wait in the input."""
    on_outage: Annotated[OnOutage, choice(OnOutage)] = "pause"
    """Without the claim store: hold the partitions, or continue and let duplicates of the sender
    pass."""
    timeout_ms: Annotated[int, duration("10ms", "1m")] = 2_000
    """How long one answer may take before the claim store counts as away."""


class CallSettings(SettingsGroup):
    """Calls of the transform."""

    concurrency: Annotated[int, whole(1, 1_024)] = 1
    """Most calls at once: of an async transform on an event loop, of a plain function on as many
    threads, for which it must be safe."""
    order: Annotated[CallOrder, choice(CallOrder)] = "key"
    """key: records of one key are called one at a time, in input order. none: all calls overlap.
    Outputs are in input order either way."""
    records_max: Annotated[int, whole(1, 10_000)] = 256
    """Longest list that a transform of lists (records: list[Record]) is given."""
    output_bytes_max: Annotated[int, size("1KiB", "1GiB")] = 128 << 20
    """Largest outputs of one record, each counted with its bytes and 900 more: beyond it the
    record is a dead letter, OutputsTooLarge, and a generator is asked for no more."""

    timeout_ms: Annotated[int | None, duration("100ms", "24h")] = None
    """A coroutine that takes longer is cancelled, and its record becomes a dead letter with the
    reason timeout. Any other call ends the process with exit code 8; its record is then called in
    another process and becomes a dead letter when it hangs again. Unset: as
    HAPAX_GROUP__MAX_POLL_INTERVAL allows, and any time for calls that overlap."""


class RetrySettings(SettingsGroup):
    """How often something is tried."""

    attempts: Annotated[int, _ATTEMPTS] = 3
    """Attempts of one batch or record before the culprit becomes a dead letter or waits for a later
    try."""
    backoff_ms: Annotated[int, duration("0ms", "1s")] = 5
    """Pause before the second attempt; it doubles up to 1s, and chance takes up to half of it.
    Later records wait."""
    topic: Annotated[str | None, TOPIC] = None
    """Topic in which records wait for a later try. Unset: the app's name and -retry when
    HAPAX_RETRY__LATER is set; else there are no later tries."""
    later: Annotated[tuple[str, ...] | None, ERRORS] = None
    """Exceptions after which a record is tried again later, by name or with their module,
    subclasses included: TimeoutError,shop.prices.Busy."""
    later_attempts: Annotated[int, whole(1, 1_000)] = 8
    """Later tries of one record before it becomes a dead letter."""
    delay_ms: Annotated[int, duration("1s", "24h")] = 10_000
    """Delay before the first later try by HAPAX_RETRY__LATER; it doubles each time, and chance adds
    up to a tenth."""
    delay_max_ms: Annotated[int, duration("1s", "24h")] = 3_600_000
    """Longest of these delays."""


class StateSettings(SettingsGroup):
    """State that a transform keeps by key."""

    topic: Annotated[str | None, TOPIC] = None
    """Compacted topic with as many partitions as the input. Default: HAPAX_APP and -state."""
    dir: Annotated[str | None, PATH] = None
    """Folder of this instance for its state, so that a restart reads only what has changed since.
    Unset: a temporary one, and each start reads all of the changelog."""
    size_max: Annotated[int, size("1MiB", "1024GiB")] = 16 << 30
    """Largest state on disk; beyond it the service stops. No room is taken before it is needed."""


class StopAfterSettings(SettingsGroup):
    """Bounded runs; HAPAX_INPUT__END is another."""

    records: Annotated[int | None, whole(1, _OFFSET_MAX)] = None
    """Stop after this many input records."""
    at_end: Annotated[bool, flag()] = False
    """Stop at the ends that the input partitions had at the start."""
    open: Annotated[Open, choice(Open)] = "wait"
    """When only open transactions hold back what is left before the ends: wait until they are
    decided, or leave, with exit code 0."""
    open_timeout_ms: Annotated[int, duration("1s", "24h")] = 1_200_000
    """How long to wait while none is decided, before exit code 1. Brokers abort after
    transaction.max.timeout.ms (15m unless set)."""


class ShutdownSettings(SettingsGroup):
    """How the service leaves."""

    timeout_ms: Annotated[int, duration("1s", "1h")] = 10_000
    """How long a stop may take; the supervisor must wait longer before it kills."""


class WatchdogSettings(SettingsGroup):
    """What ends a process that hangs."""

    timeout_ms: Annotated[int, duration("1s", "24h")] = 60_000
    """A client call that takes longer ends the process; the longest legal one measured took 43s, in
    an outage of all brokers."""


class TelemetrySettings(SettingsGroup):
    """What the service reports."""

    port: Annotated[int, whole(0, 65_535)] = 9464
    """Port of metrics, probes and status page; 0: any free one."""
    address: Annotated[str, TEXT] = "0.0.0.0"  # noqa: S104 - probes and scrapes come from outside of the container
    """Address to listen on."""
    log_level: Annotated[LogLevel, choice(LogLevel)] = "info"
    """Least level that is logged."""
    log_format: Annotated[LogFormat, choice(LogFormat)] = "auto"
    """auto: console on a terminal, json everywhere else."""
    lag_interval_ms: Annotated[int, duration("1s", "1h")] = 10_000
    """How often a thread queries log offsets: lag, what retention is about to delete, open
    transactions."""
    readers: Annotated[tuple[str, ...] | None, GROUPS] = None
    """Other consumer groups, as of readers of the outputs, whose unread committed records one
    worker counts at each lag interval, on the cluster of the outputs."""
    runbooks_url: Annotated[str, TEXT] = "https://hapax.example/docs"
    """Where these pages are kept; the status page links to RUNBOOKS_URL/alerts.md and
    RUNBOOKS_URL/runbooks.md."""
    tracing: Annotated[bool, flag()] = False
    """One span per transaction, by OpenTelemetry, to where OTEL_* variables say. Needs
    hapax-kafka[tracing]."""


class SparkSettings(SettingsGroup):
    """How the pipeline runs with `HAPAX_ENGINE=spark`."""

    master: Annotated[str, ADDRESS] = Field(default="local[*]", repr=False)
    """Where tasks run: local[N] within this container, or the address of a cluster
    (spark://host:port, k8s://https://host:port)."""
    properties: Annotated[dict[str, str], SPARK_PROPERTIES] = Field({}, repr=False)
    """As HAPAX_KAFKA__PROPERTIES, for Spark."""
    ship: Annotated[tuple[str, ...] | None, PATHS] = None
    """What executors of a cluster get in addition to the module or package of the function:
    folders, .py, .zip and .egg files, and one packed environment (.tar.gz), whose Python they then
    run."""
    executor_timeout_ms: Annotated[int, duration("1s", "1h")] = 30_000
    """How long a start waits for the master and the first executor of a cluster."""
    lanes: Annotated[int | None, whole(1, 10_000)] = None
    """How many tasks work at once. Unset: as many as Spark has cores."""
    range_interval_ms: Annotated[int, duration("100ms", "10m")] = 2_000
    """How long one task works while records keep coming, before another one takes its place, for
    which they wait some 0.1 s. Longer ranges cost less; on a cluster a stop waits for the running
    ones."""
    dataframe: Annotated[str | None, FUNCTION] = None
    """A function from DataFrame to DataFrame, run by Structured Streaming instead of
    HAPAX_TRANSFORM. Unset: records."""
    checkpoint: Annotated[str | None, ADDRESS] = Field(default=None, repr=False)
    """Folder or address on durable storage for positions and state. Required with
    HAPAX_SPARK__DATAFRAME."""
    trigger_interval_ms: Annotated[int, duration("10ms", "24h")] = 1_000
    """Least time between two micro-batches."""
    batch_records_max: Annotated[int, whole(1, 100_000_000)] = 100_000
    """Most input records of one micro-batch: what it writes must fit into one transaction."""
    publish: Annotated[Publish, choice(Publish)] = "together"
    """How a micro-batch becomes visible: together, in one transaction; or parallel, in parts, by
    tasks with a transaction each."""
    jars: Annotated[str | None, PATH] = None
    """Folder with Spark's Kafka connector. Unset: fetched once into the user's cache."""


Engine = Literal["worker", "spark"]
Fast = Literal["auto", "on", "off"]
Guarantee = Literal["exactly_once", "at_least_once", "at_most_once"]


class Mode(NamedTuple):
    """What follows from a guarantee.

    transactional  outputs and offsets are one transaction
    engines        that can keep it
    """

    transactional: bool
    engines: tuple[str, ...]


MODES: Final[dict[Guarantee, Mode]] = {
    "exactly_once": Mode(transactional=True, engines=("worker", "spark")),
    "at_least_once": Mode(transactional=False, engines=("worker",)),
    "at_most_once": Mode(transactional=False, engines=("worker",)),
}


class Settings(SettingsGroup):
    """The whole contract. ``load_settings`` is the door that also runs the cross-checks."""

    app: Annotated[str, NAME] = Field(examples=["orders-clean"])
    """Name of the pipeline: consumer group, prefix of the transactional ids, namespace of the
    claims."""
    engine: Annotated[Engine, choice(Engine)] = "worker"
    """What drives it."""
    instance: Annotated[str, NAME] = Field(
        examples=["orders-clean-0"],
        json_schema_extra={"default": "`POD_NAME`, else `HOSTNAME`, else the host's name"},
    )
    """Unique name of this process, kept over restarts, of its transactional id and static member.
    Two live processes with one name fence each other."""
    guarantee: Annotated[Guarantee, choice(Guarantee)] = "exactly_once"
    """What holds for every record; the two weaker ones are for comparison."""
    fast: Annotated[Fast, choice(Fast)] = "auto"
    """Whether records take the native path (in C), at less CPU: `auto` where it is installed
    and tested; `on` refuses to start without it."""
    transform: Annotated[str | None, FUNCTION] = None
    """The business rule. Unset: records pass unchanged."""
    kafka: KafkaSettings
    input: InputSettings
    output: OutputSettings
    registry: RegistrySettings
    dead_letter: DeadLetterSettings
    dedup: DedupSettings
    transaction: TransactionSettings
    group: GroupSettings
    spark: SparkSettings
    call: CallSettings
    retry: RetrySettings
    state: StateSettings
    stop_after: StopAfterSettings
    shutdown: ShutdownSettings
    watchdog: WatchdogSettings
    telemetry: TelemetrySettings

    def effective(self) -> dict[str, str]:
        """Return variable → value, readable, with secrets as ``***``."""
        return {variable.name: variable.shown(self) for variable in VARIABLES}

    def changed(self) -> dict[str, str]:
        """Return those of ``effective`` that differ from their defaults: one log line at start."""
        defaults = {variable.name: variable.value_unset for variable in VARIABLES}
        return {name: text for name, text in self.effective().items() if text != defaults[name]}

    @property
    def elsewhere(self) -> bool:
        return self.output.kafka.bootstrap_servers is not None

    @property
    def target(self) -> "Settings":
        output = self.output.kafka
        if output.bootstrap_servers is None:
            return self
        kafka = KafkaSettings(
            bootstrap_servers=output.bootstrap_servers,
            properties=output.properties,
            security=output.security,
        )
        return self.model_copy(update={"kafka": kafka})

    @property
    def start(self) -> str | SpanWords:
        """Where a group without offsets starts, and the end where there is one."""
        start, end = self.input.start, self.input.end
        return start if end is None and start in WORDS else SpanWords(start, end)

    @property
    def at_ends(self) -> bool:
        """Whether the run is done when the group has come to the ends of all partitions."""
        return self.stop_after.at_end or self.input.end is not None

    @property
    def bounded(self) -> bool:
        return self.at_ends or self.stop_after.records is not None

    @property
    def retry_topic(self) -> str | None:
        """Where records wait for a later try; None: there are no later tries."""
        wanted = self.retry.later or self.retry.topic
        return self.retry.topic or (f"{self.app}-retry" if wanted else None)

    @property
    def state_topic(self) -> str:
        """The changelog of a transform that keeps state."""
        return self.state.topic or f"{self.app}-state"

    @property
    def read_topics(self) -> tuple[str, ...]:
        retry = self.retry_topic
        return self.input.topics if retry is None else (*self.input.topics, retry)

    @property
    def formats(self) -> FormatOptions:
        return FormatOptions(
            input=self.input.format,
            output=self.output.format,
            topic=self.output.topic,
            schema=self.output.schema_file,
            reader=self.input.reader_schema,
            registry=self.registry.options(self.call.timeout_ms),
        )

    @property
    def mode(self) -> Mode:
        return MODES[self.guarantee]


VARIABLES: Final = tuple(variables(Settings))
BY_NAME: Final = {variable.name: variable for variable in VARIABLES}
