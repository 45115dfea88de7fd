"""All settings of one process."""

from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field

from hapax.core.formats import FormatOptions
from hapax.core.span import WORDS, SpanWords
from hapax.settings.base import SettingsGroup, variables
from hapax.settings.kafka import GroupSettings, KafkaSettings, TransactionSettings
from hapax.settings.pipeline import (
    CallSettings,
    DeadLetterSettings,
    DedupSettings,
    InputSettings,
    OutputSettings,
    RegistrySettings,
    RetrySettings,
    ShutdownSettings,
    SparkSettings,
    StateSettings,
    StopAfterSettings,
    TelemetrySettings,
    WatchdogSettings,
)
from hapax.settings.value_types import FUNCTION, NAME, choice

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
