"""Further properties of the Kafka client and of Spark, and why some are refused.

Names of Kafka's: librdkafka, CONFIGURATION.md. librdkafka strips a leading ``topic.`` from a name,
so ``topic.acks`` is ``acks``; both are looked up.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from hapax.settings.redaction import hidden, hidden_values, secrets_in_json
from hapax.settings.value_types import Form

if TYPE_CHECKING:
    from collections.abc import Callable

_SECURITY: Final = "HAPAX_KAFKA__SECURITY__"
_OWN: Final = "it follows from "
_OFFSETS: Final = "offsets are committed inside the transaction and nowhere else"
_DURABLE: Final = "an output counts only when all in-sync replicas have it, in order and once"
_LOGS: Final = "the client's log lines show when a transaction is in doubt"
_CODE: Final = "it would load foreign code into the process"

_KAFKA_REFUSED: Final[dict[str, str]] = {
    "bootstrap.servers": "use HAPAX_KAFKA__BOOTSTRAP_SERVERS",
    "metadata.broker.list": "use HAPAX_KAFKA__BOOTSTRAP_SERVERS",
    "enable.auto.commit": _OFFSETS,
    "auto.commit.enable": _OFFSETS,
    "auto.commit.interval.ms": _OFFSETS,
    "enable.auto.offset.store": _OFFSETS,
    "offset.store.method": _OFFSETS,
    "offset.store.path": _OFFSETS,
    "offset.store.sync.interval.ms": _OFFSETS,
    "auto.offset.reset": "a position that fell off the log must stop the service; where a new "
    "group starts is HAPAX_INPUT__START",
    "isolation.level": "the input is read with read_committed, or aborted records would have "
    "effects",
    "enable.partition.eof": "the ends of partitions are needed to bring lag to 0",
    "check.crcs": "a record that was damaged on its way must not have effects",
    "enable.idempotence": _DURABLE,
    "enable.gapless.guarantee": _DURABLE,
    "acks": _DURABLE,
    "request.required.acks": _DURABLE,
    "retries": _DURABLE,
    "message.send.max.retries": _DURABLE,
    "max.in.flight": _DURABLE,
    "max.in.flight.requests.per.connection": _DURABLE,
    "queuing.strategy": _DURABLE,
    "msg_order_cmp": _DURABLE,
    "message.timeout.ms": _OWN + "HAPAX_TRANSACTION__TIMEOUT",
    "delivery.timeout.ms": _OWN + "HAPAX_TRANSACTION__TIMEOUT",
    "transaction.timeout.ms": "use HAPAX_TRANSACTION__TIMEOUT",
    "transactional.id": _OWN + "HAPAX_APP and HAPAX_INSTANCE",
    "group.id": "use HAPAX_APP",
    "group.instance.id": _OWN + "HAPAX_INSTANCE and HAPAX_GROUP__MEMBERSHIP",
    "group.protocol": "use HAPAX_GROUP__PROTOCOL",
    "group.protocol.type": "use HAPAX_GROUP__PROTOCOL",
    "session.timeout.ms": "use HAPAX_GROUP__SESSION_TIMEOUT",
    "heartbeat.interval.ms": _OWN + "HAPAX_GROUP__SESSION_TIMEOUT",
    "max.poll.interval.ms": "use HAPAX_GROUP__MAX_POLL_INTERVAL",
    "partition.assignment.strategy": "handing partitions over safely depends on it",
    "allow.auto.create.topics": "a misspelt name would get a topic of its own",
    "partitioner": "use HAPAX_OUTPUT__PARTITIONER",
    "metadata.recovery.strategy": "anything but none can block the offsets call indefinitely "
    "after a lost connection",
    "debug": _LOGS,
    "logger": _LOGS,
    "log_level": _LOGS,
    "log.queue": _LOGS,
    "log.connection.close": _LOGS,
    "log.thread.name": _LOGS,
    "enabled_events": "it takes events away from the service",
    "on_delivery": "callbacks belong to the service",
    "on_commit": "callbacks belong to the service",
    "opaque": "callbacks belong to the service",
    "default_topic_conf": "it would hide properties from this check",
    "default.topic.config": "it would hide properties from this check",
    "delivery.report.only.error": "every delivery is counted",
    "plugin.library.paths": _CODE,
    "interceptors": _CODE,
    "ssl.providers": _CODE,
    "security.protocol": f"use {_SECURITY}PROTOCOL",
    "sasl.mechanism": f"use {_SECURITY}SASL_MECHANISM",
    "sasl.mechanisms": f"use {_SECURITY}SASL_MECHANISM",
    "sasl.username": f"use {_SECURITY}USERNAME",
    "sasl.password": f"use {_SECURITY}PASSWORD",
    "sasl.oauthbearer.token.endpoint.url": f"use {_SECURITY}OAUTH_TOKEN_URL",
    "sasl.oauthbearer.client.id": f"use {_SECURITY}OAUTH_CLIENT_ID",
    "sasl.oauthbearer.client.secret": f"use {_SECURITY}OAUTH_CLIENT_SECRET",
    "sasl.oauthbearer.scope": f"use {_SECURITY}OAUTH_SCOPE",
    "https.ca.location": f"use {_SECURITY}OAUTH_CA_FILE",
    "ssl.ca.location": f"use {_SECURITY}CA_FILE",
    "ssl.certificate.location": f"use {_SECURITY}CERTIFICATE_FILE",
    "ssl.key.location": f"use {_SECURITY}KEY_FILE",
    "ssl.key.password": f"use {_SECURITY}KEY_PASSWORD",
    "sasl.jaas.config": f"use {_SECURITY}USERNAME and {_SECURITY}PASSWORD",
}

# Not among the settings, not secret, and needed by some identity providers.
_PASSED: Final = frozenset({"sasl.oauthbearer.extensions", "sasl.oauthbearer.sub.claim.name"})

_REFUSED_PATTERNS: Final = (
    (re.compile(r".*_cb|.*_callback_data"), "callbacks belong to the service"),
    (re.compile(r"test\..*"), "it replaces the brokers by a mock"),
    (re.compile(r"ssl\.engine\..*"), _CODE),
    (re.compile(r"ssl\.truststore\..*"), f"use {_SECURITY}CA_FILE, PEM"),
    (re.compile(r"ssl\.keystore\..*"), f"use {_SECURITY}CERTIFICATE_FILE and KEY_FILE, PEM"),
    (
        re.compile(r"sasl\..*|.*\.pem|ssl_.*|enable\.sasl\..*"),
        f"identity is set with the {_SECURITY} settings, where secrets stay secret",
    ),
)

_SPARK_REFUSED: Final[dict[str, str]] = {
    "spark.app.name": "use HAPAX_APP",
    "spark.master": "use HAPAX_SPARK__MASTER",
    "spark.submit.deployMode": "the driver is this very process",
    "spark.speculation": "a second attempt of a task would only fence the first",
    "spark.python.use.daemon": "a process for each task would import everything each time",
    "spark.sql.streaming.checkpointLocation": "use HAPAX_SPARK__CHECKPOINT",
    "spark.sql.streaming.stopActiveRunOnRestart": "it distinguishes two runs of one query",
}


def refusal(name: str) -> str | None:
    """Return why this property of the Kafka client may not be set; None when it may."""
    while name.startswith("topic.") and name not in _KAFKA_REFUSED:
        name = name.removeprefix("topic.")
    if name in _PASSED:
        return None
    if name in _KAFKA_REFUSED:
        return _KAFKA_REFUSED[name]
    return next((why for pattern, why in _REFUSED_PATTERNS if pattern.fullmatch(name)), None)


class _Kind(NamedTuple):
    """Properties of one library.

    refusal  says why one may not be set
    repeats  whether one may be given twice; the last one counts
    """

    library: str
    name: re.Pattern[str]
    refusal: Callable[[str], str | None]
    example: str
    repeats: bool = False


class _Pairs(list[tuple[str, object]]):
    """A JSON object with its repeats, so that they can be refused."""


def _parse(kind: _Kind, text: str) -> dict[str, str]:
    hint = f"write a JSON object like {kind.example}"
    pairs = None
    with suppress(ValueError, RecursionError):
        pairs = json.loads(
            text, object_pairs_hook=_Pairs, parse_float=str, parse_int=str, parse_constant=str
        )
    if not isinstance(pairs, _Pairs):
        # TRY004 asks for a TypeError, but to the reader of the message it is a wrong value.
        raise ValueError(hint)  # noqa: TRY004
    properties: dict[str, str] = {}
    problems: list[str] = []
    for name, value in pairs:
        why = kind.refusal(name)
        if not kind.name.fullmatch(name):
            problems.append(
                f"{json.dumps(hidden(name))} is not the name of a {kind.library} property"
            )
        elif why is not None:
            problems.append(f"{name} is refused: {why}")
        elif name in properties and not kind.repeats:
            problems.append(f"{name} is given more than once")
        elif not isinstance(value, str | bool) or not str(value).isprintable():
            problems.append(f"{name} must be a text on one line, a number, true or false")
        else:
            properties[name] = str(value).lower() if isinstance(value, bool) else value
    if problems:
        raise ValueError(*problems)
    return properties


def _form(kind: _Kind) -> Form:
    # Not quotable: a secret in the wrong place is still a secret.
    return Form(
        f"JSON object of {kind.library} properties and plain values",
        partial(_parse, kind),
        show=lambda properties: json.dumps(hidden_values(properties), sort_keys=True),
        quotable=False,
        filed=True,
        parts=secrets_in_json,
    )


KAFKA_PROPERTIES: Final = _form(
    _Kind("librdkafka", re.compile(r"[a-z0-9._]+"), refusal, '{"linger.ms": 5}')
)
SPARK_PROPERTIES: Final = _form(
    _Kind(
        "Spark",
        re.compile(r"spark\.[A-Za-z0-9._-]+"),
        _SPARK_REFUSED.get,
        '{"spark.executor.memory": "4g"}',
        repeats=True,
    )
)
