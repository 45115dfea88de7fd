"""Rules that two settings must keep together. Each problem is one sentence with both values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.claims.store import kind_of
from hapax.settings.base import Problem
from hapax.settings.dataframe_rules import dataframe_problems
from hapax.settings.retry_rules import retry_problems
from hapax.settings.schema_rules import schema_problems
from hapax.settings.security_rules import security_problems
from hapax.settings.target_rules import target_problems
from hapax.settings.value_types import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.settings.model import Settings

_TRANSACTION_INTERVAL: Final = "HAPAX_TRANSACTION__INTERVAL"
_TRANSACTION_TIMEOUT: Final = "HAPAX_TRANSACTION__TIMEOUT"
_SESSION_TIMEOUT: Final = "HAPAX_GROUP__SESSION_TIMEOUT"
_POLL_INTERVAL: Final = "HAPAX_GROUP__MAX_POLL_INTERVAL"
_WATCHDOG: Final = "HAPAX_WATCHDOG__TIMEOUT"
_DEDUP: Final = "HAPAX_DEDUP__"
_CLAIM: Final = f"{_DEDUP}TTL"
_CLAIMS_URL: Final = f"{_DEDUP}REDIS_URL"
_CALL: Final = "HAPAX_CALL__TIMEOUT"
_INPUT: Final = "HAPAX_INPUT__TOPICS"
_OUTPUT: Final = "HAPAX_OUTPUT__TOPIC"
_DEAD_LETTER: Final = "HAPAX_DEAD_LETTER__TOPIC"


def broken_rules(settings: Settings) -> Iterator[Problem]:
    """Yield every rule that these settings break."""
    yield from _times(settings)
    yield from dataframe_problems(settings)
    yield from retry_problems(settings)
    yield from _membership(settings)
    yield from _span(settings)
    yield from _topics(settings)
    yield from security_problems(settings.kafka.security, "HAPAX_KAFKA__")
    yield from target_problems(settings)
    yield from _claim_store(settings)
    yield from schema_problems(settings)


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

    It polls between them. All other calls are made beside it, and may take any time.
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


def _claim_store(settings: Settings) -> Iterator[Problem]:
    dedup = settings.dedup
    files = {
        "CA_FILE": dedup.ca_file,
        "CERTIFICATE_FILE": dedup.certificate_file,
        "KEY_FILE": dedup.key_file,
        "KEY_PASSWORD": dedup.key_password,
    }
    if dedup.claims_url is None:
        return
    kind = kind_of(dedup.claims_url)
    encrypted = kind.transport(dedup.claims_url).encrypted
    for name, value in files.items():
        # Left alone, the service would connect without the protection that was asked for.
        if value is not None and not encrypted:
            yield Problem(
                (_CLAIMS_URL, _DEDUP + name),
                f"{_DEDUP}{name} is set but {_CLAIMS_URL} has no TLS: begin the address with "
                f"{kind.tls_scheme}:// or remove the other",
            )
    for name, needed in (
        ("CERTIFICATE_FILE", "KEY_FILE"),
        ("KEY_FILE", "CERTIFICATE_FILE"),
        ("KEY_PASSWORD", "KEY_FILE"),
    ):
        if files[name] is not None and files[needed] is None:
            yield Problem(
                (_DEDUP + name, _DEDUP + needed),
                f"{_DEDUP}{name} needs {_DEDUP}{needed}, which is unset: set both or neither",
            )
