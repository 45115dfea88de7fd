"""Settings of the way of a record: ids, transform, dead letters, operation."""

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from hapax.settings.base import SettingsGroup
from hapax.settings.validators import (
    CLAIMS_URL,
    ERRORS,
    GROUPS,
    ID_SOURCES,
    PATH,
    SECRET,
    TEXT,
    TOPIC,
)
from hapax.settings.value_types import choice, duration, flag, share, whole

Open = Literal["wait", "leave"]
OnOutage = Literal["pause", "pass"]
CallOrder = Literal["key", "none"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "console"]

_ATTEMPTS_MIN = 3
_OFFSET_MAX = (1 << 63) - 1


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
        """Whether there is a claim store."""
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
