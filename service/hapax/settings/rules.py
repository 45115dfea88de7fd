"""Rules that two settings must keep together. Each problem is one sentence with both values.

It names both variables before the colon, and what to do about it after that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.claims.store import kind_of
from hapax.core.formats import WITH_REGISTRY
from hapax.core.span import WORDS
from hapax.processing.identity import id_source
from hapax.settings.model import BY_NAME
from hapax.settings.redaction import hidden
from hapax.settings.value_types import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hapax.settings.base import SettingsGroup
    from hapax.settings.kafka import SecuritySettings
    from hapax.settings.model import DedupSettings, RegistrySettings, Settings

_POLL_INTERVAL: Final = "HAPAX_GROUP__MAX_POLL_INTERVAL"
_CALL: Final = "HAPAX_CALL__TIMEOUT"
_INPUT: Final = "HAPAX_INPUT__TOPICS"
_INPUT_FORMAT: Final = "HAPAX_INPUT__FORMAT"
_OUTPUT: Final = "HAPAX_OUTPUT__TOPIC"
_OUTPUT_FORMAT: Final = "HAPAX_OUTPUT__FORMAT"
_SCHEMA: Final = "HAPAX_OUTPUT__SCHEMA"
_CLUSTER: Final = "HAPAX_OUTPUT__KAFKA__"
_SERVERS: Final = f"{_CLUSTER}BOOTSTRAP_SERVERS"
_DEAD_LETTER: Final = "HAPAX_DEAD_LETTER__TOPIC"
_DATAFRAME: Final = "HAPAX_SPARK__DATAFRAME"
_CHECKPOINT: Final = "HAPAX_SPARK__CHECKPOINT"
_RETRY: Final = "HAPAX_RETRY__"
_REGISTRY: Final = "HAPAX_REGISTRY__"
_DEDUP: Final = "HAPAX_DEDUP__"
_CLAIMS_URL: Final = f"{_DEDUP}REDIS_URL"
_SINK: Final = "--sink"
_BINARY: Final = ("avro", "protobuf")
_LOGIN: Final = ("USERNAME", "PASSWORD")
_OAUTH: Final = ("OAUTH_TOKEN_URL", "OAUTH_CLIENT_ID", "OAUTH_CLIENT_SECRET")
_FETCHED: Final = (*_OAUTH, "OAUTH_CA_FILE", "OAUTH_SCOPE")
_TOKENS: Final = ("OAUTH_TOKEN_FILE", "OAUTH_MSK_REGION")
_NOT_OF_ROWS: Final = {
    "HAPAX_TRANSFORM": (
        "the pipeline is the business rule; call the other from it, or unset one of them"
    ),
    _CLAIMS_URL: "rows have no claims; use dropDuplicatesWithinWatermark in the pipeline",
    _DEAD_LETTER: (
        "a row that fails has no input record; let the pipeline give bad rows a topic column"
    ),
    "HAPAX_INPUT__START": (
        "positions of a query are in its checkpoint; run the span in the records form"
    ),
    "HAPAX_INPUT__END": (
        "a query has no end in time; use HAPAX_STOP_AFTER__AT_END, or the records form"
    ),
    "HAPAX_STOP_AFTER__RECORDS": (
        "a query stops between micro-batches only; use HAPAX_STOP_AFTER__AT_END"
    ),
    "HAPAX_KAFKA__SECURITY__OAUTH_MSK_REGION": (
        "Kafka's Java client signs no requests; use SCRAM or a certificate"
    ),
    "HAPAX_CALL__TIMEOUT": "Spark makes the calls; bound what may hang in the function itself",
    "HAPAX_CALL__CONCURRENCY": "Spark makes the calls, one on each of its cores",
    "HAPAX_OUTPUT__TIMESTAMP": "the column timestamp has it; f.current_timestamp() is that of now",
    "HAPAX_GUARANTEE": (
        "its only guarantee is exactly_once; Spark's own Kafka sink is at least once"
    ),
}
"""What a DataFrame pipeline has no use for, and what to do instead."""
_OF_ROWS: Final[dict[str, tuple[object, ...]]] = {
    "HAPAX_INPUT__START": WORDS,
    "HAPAX_CALL__CONCURRENCY": (1,),
    "HAPAX_OUTPUT__TIMESTAMP": ("record",),
    "HAPAX_GUARANTEE": ("exactly_once",),
}
_CERTIFICATE: Final = (("CERTIFICATE_FILE", "KEY_FILE"), ("KEY_FILE", "CERTIFICATE_FILE"))


def broken_rules(settings: Settings) -> Iterator[str]:
    yield from _times(settings)
    yield from _dataframe(settings)
    yield from _later_tries(settings)
    yield from _modes(settings)
    yield from _topics(settings)
    yield from security_problems(settings.kafka.security, "HAPAX_KAFKA__")
    yield from target_problems(settings)
    yield from claim_store_problems(settings.dedup)
    yield from _formats(settings)
    yield from registry_problems(settings.registry)


def _times(settings: Settings) -> Iterator[str]:
    interval = ("HAPAX_TRANSACTION__INTERVAL", settings.transaction.interval_ms)
    transaction = ("HAPAX_TRANSACTION__TIMEOUT", settings.transaction.timeout_ms)
    session = ("HAPAX_GROUP__SESSION_TIMEOUT", settings.group.session_timeout_ms)
    poll = (_POLL_INTERVAL, settings.group.max_poll_interval_ms)
    watchdog = ("HAPAX_WATCHDOG__TIMEOUT", settings.watchdog.timeout_ms)
    claim = ("HAPAX_DEDUP__TTL", settings.dedup.ttl_ms)
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


def call_problems(settings: Settings) -> Iterator[str]:
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


def state_problems(settings: Settings) -> Iterator[str]:
    """Yield what does not go with a transform that keeps state."""
    what = f"HAPAX_TRANSFORM={settings.transform} keeps state"
    if settings.engine != "worker":
        yield (
            f"{what}, and HAPAX_ENGINE is {settings.engine}: keep it with HAPAX_SPARK__DATAFRAME,"
            " or choose the worker"
        )
    if settings.guarantee != "exactly_once":
        yield f"{what}, and HAPAX_GUARANTEE is {settings.guarantee}: choose exactly_once"
    if settings.elsewhere:
        yield f"{what}, and HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS is another cluster: remove it"
    if settings.retry_topic is not None:
        yield f"{what}, and later tries would change it out of order: remove {_retry(settings)}"
    if len(settings.input.topics) > 1 and settings.group.protocol != "consumer":
        yield (
            f"{what}, and {_INPUT} are several, of which a member must get the same partitions: set"
            " HAPAX_GROUP__PROTOCOL=consumer and HAPAX_GROUP__MEMBERSHIP=dynamic, or read one topic"
        )
    named = (*settings.input.topics, settings.output.topic, settings.dead_letter.topic)
    if settings.state_topic in named:
        yield f"{what} in topic {settings.state_topic}, which {_INPUT} or outputs name: rename it"
    if settings.call.order == "none":
        yield f"{what}, and HAPAX_CALL__ORDER=none lets calls of one key overlap: choose key"


def _not_shorter(shorter: tuple[str, int], longer: tuple[str, int], why: str) -> str:
    return (
        f"{shorter[0]}={duration_text(shorter[1])} must be shorter than "
        f"{longer[0]}={duration_text(longer[1])}: {why}; lower the first or raise the second"
    )


def _modes(settings: Settings) -> Iterator[str]:
    if settings.group.membership == "static" and settings.group.protocol == "consumer":
        yield (
            "HAPAX_GROUP__MEMBERSHIP=static does not go with HAPAX_GROUP__PROTOCOL=consumer: a "
            "killed process could not come back under its name; set the first to dynamic or the "
            "second to classic"
        )
    start, end = settings.input.start, settings.input.end
    if end is not None and start in {"latest", "refuse"}:
        yield (
            f"HAPAX_INPUT__START={start} leaves nothing before HAPAX_INPUT__END={end}: start at"
            " earliest, at a time, or at offsets"
        )


def _topics(settings: Settings) -> Iterator[str]:
    inputs, output = ",".join(settings.input.topics), settings.output.topic
    dead_letter = settings.dead_letter.topic
    for name, topic in ((_OUTPUT, output), (_DEAD_LETTER, dead_letter)):
        if topic in settings.input.topics and not settings.elsewhere:
            yield (
                f"{name}={topic} is one of {_INPUT}={inputs}: the service would read its own "
                "output in an endless loop; choose another topic"
            )
    if dead_letter == output:
        yield (
            f"{_DEAD_LETTER}={dead_letter} is also {_OUTPUT}={output}: readers of the output "
            "would take dead letters for results; choose another topic for one of them"
        )


def _dataframe(settings: Settings) -> Iterator[str]:
    if settings.app.endswith(_SINK):
        yield (
            f"HAPAX_APP={settings.app} ends in {_SINK}, which names the group that holds the "
            "marker of a DataFrame pipeline: choose another name"
        )
    pipeline = settings.spark.dataframe
    if pipeline is None:
        if settings.engine not in settings.mode.engines:
            yield f"HAPAX_GUARANTEE={settings.guarantee} is for the worker; Spark runs exactly_once"
        return
    if settings.engine != "spark":
        yield (
            f"{_DATAFRAME}={pipeline} needs HAPAX_ENGINE=spark, which is {settings.engine}: set "
            "the engine, or use HAPAX_TRANSFORM"
        )
    yield from _checkpoint(settings)
    for name, instead in _NOT_OF_ROWS.items():
        value = BY_NAME[name].value(settings)
        if value is not None and value not in _OF_ROWS.get(name, ()):
            given = "***" if name == _CLAIMS_URL else value
            yield f"{name}={given} does not go with {_DATAFRAME}={pipeline}: {instead}"


def _checkpoint(settings: Settings) -> Iterator[str]:
    checkpoint, master = settings.spark.checkpoint, settings.spark.master
    if checkpoint is None:
        yield (
            f"{_DATAFRAME}={settings.spark.dataframe} needs {_CHECKPOINT}, which is unset: its "
            "positions and its state live there, so name a folder or an address that outlives "
            "this process"
        )
    # ``file:///`` says that others see it.
    elif not master.startswith("local") and "://" not in checkpoint:
        yield (
            f"{_CHECKPOINT}={hidden(checkpoint)} is a folder of this machine, which the executors "
            f"of HAPAX_SPARK__MASTER={hidden(master)} do not see: name shared storage with its "
            "scheme, like s3a://bucket/orders (a volume that all of them mount is written file:///)"
        )


def _later_tries(settings: Settings) -> Iterator[str]:
    retry, topic = settings.retry, settings.retry_topic
    if retry.delay_ms > retry.delay_max_ms:
        yield (
            f"{_RETRY}DELAY={duration_text(retry.delay_ms)} must not be longer than "
            f"{_RETRY}DELAY_MAX={duration_text(retry.delay_max_ms)}: lower the first or raise the "
            "second"
        )
    if topic is None:
        return
    setting = _retry(settings)
    if settings.engine != "worker":
        yield (
            f"{setting} needs HAPAX_ENGINE=worker, which is {settings.engine}: nothing there reads "
            "records back when they are due; remove it, or choose the worker"
        )
    if settings.fast == "on":
        yield (
            f"{setting} does not go with HAPAX_FAST=on: records that may wait take the path in "
            "Python; set HAPAX_FAST=auto"
        )
    others = dict.fromkeys(settings.input.topics, _INPUT)
    others[settings.output.topic] = _OUTPUT
    if settings.dead_letter.topic:
        others[settings.dead_letter.topic] = _DEAD_LETTER
    if topic in others:
        yield (
            f"{_RETRY}TOPIC={topic} is also in {others[topic]}: records that wait need a topic of "
            "their own; choose another one"
        )


def _retry(settings: Settings) -> str:
    return f"{_RETRY}{'TOPIC' if settings.retry.topic else 'LATER'}"


def _formats(settings: Settings) -> Iterator[str]:
    registry, output = settings.registry, settings.output
    for name, value in ((_INPUT_FORMAT, settings.input.format), (_OUTPUT_FORMAT, output.format)):
        if value in WITH_REGISTRY and registry.url is None:
            yield (
                f"{name}={value} needs {_REGISTRY}URL, which is unset: name the registry, or choose"
                " bytes or json"
            )
        if value != "bytes" and settings.spark.dataframe is not None:
            yield (
                f"{name}={value} is for functions of records: a DataFrame decodes its values itself"
                " (from_avro, from_json); unset one of them"
            )
    if output.format in WITH_REGISTRY:
        yield from _subjects(settings)
    if settings.input.reader_schema is not None and settings.input.format != "avro":
        yield (
            f"HAPAX_INPUT__READER_SCHEMA is set but {_INPUT_FORMAT}={settings.input.format} does"
            " not use it: choose avro, or remove it"
        )
    first = settings.dedup.id[0]
    if settings.input.format in _BINARY and "json" in id_source(first).kind.split("+"):
        yield (
            f"{_DEDUP}ID begins with {first}, which can match nothing: values of {_INPUT_FORMAT}="
            f"{settings.input.format} are no JSON. Begin with a header or the key"
        )


def _subjects(settings: Settings) -> Iterator[str]:
    registry, schema = settings.registry, settings.output.schema_file
    if registry.subjects != "topic" and schema is None:
        yield (
            f"{_REGISTRY}SUBJECTS={registry.subjects} needs {_SCHEMA}, which is unset: the subject"
            " is named after the record in that schema"
        )
    if registry.auto_register and schema is None:
        yield (
            f"{_REGISTRY}AUTO_REGISTER=true needs {_SCHEMA}, which is unset: name the file with the"
            " schema to register"
        )


# -- logins and certificates of brokers, claim store and registry; and two clusters ------------


def security_problems(security: SecuritySettings, cluster: str) -> Iterator[str]:
    """Yield what is wrong; ``cluster``: what the variables of this cluster begin with."""
    yield from _sasl(security, f"{cluster}SECURITY__")
    yield from _tls(security, f"{cluster}SECURITY__")


def _sasl(security: SecuritySettings, prefix: str) -> Iterator[str]:
    if not security.protocol.startswith("sasl_"):
        yield from _idle(
            security, prefix, ("SASL_MECHANISM", *_LOGIN, *_FETCHED, *_TOKENS), "sasl_ssl"
        )
        return
    if security.sasl_mechanism is None:
        yield (
            f"{prefix}PROTOCOL={security.protocol} needs {prefix}SASL_MECHANISM, which is unset:"
            " name the mechanism that the brokers offer, or choose ssl or plaintext"
        )
        return
    needed: tuple[str, ...] = _LOGIN
    if security.sasl_mechanism == "OAUTHBEARER":
        made = tuple(_given(security, _TOKENS))
        needed = made or _OAUTH
        given = (*made, *_given(security, _FETCHED))
        if made and len(given) > 1:
            first, second = (prefix + name for name in given[:2])
            yield (
                f"{first} is set, and so is {second}: a token comes from a file, from AWS or from a"
                " token service; unset one of them"
            )
    for name in needed:
        if name not in _given(security, needed):
            yield (
                f"{prefix}SASL_MECHANISM={security.sasl_mechanism} needs {prefix}{name}, which is"
                " unset: set it, or choose another mechanism"
            )


def _tls(security: SecuritySettings, prefix: str) -> Iterator[str]:
    if not security.protocol.endswith("ssl"):
        yield from _idle(security, prefix, ("CA_FILE", "CERTIFICATE_FILE", "KEY_FILE"), "ssl")
    yield from _both(security, prefix, _CERTIFICATE, shown=True)
    if security.key_password is not None and security.key_file is None:
        yield (
            f"{prefix}KEY_PASSWORD is set but {prefix}KEY_FILE is unset: name the key it "
            "belongs to, or remove it"
        )


def _idle(
    security: SecuritySettings, prefix: str, names: Iterable[str], wanted: str
) -> Iterator[str]:
    # Left alone, the service would connect without the protection that was asked for.
    for name in _given(security, names):
        yield (
            f"{prefix}{name} is set but {prefix}PROTOCOL={security.protocol} does not use it: set "
            f"the protocol to {wanted} or remove the other"
        )


def target_problems(settings: Settings) -> Iterator[str]:
    output = settings.output.kafka
    if not settings.elsewhere:
        # Left alone, the service would write to the cluster of the input.
        own = {"PROPERTIES": output.properties} | output.security.model_dump(exclude_defaults=True)
        for name in (name.upper() for name, value in own.items() if value):
            variable = _CLUSTER + (name if name == "PROPERTIES" else f"SECURITY__{name}")
            yield (
                f"{variable} is set but {_SERVERS} is unset: name the brokers of the other"
                " cluster, or remove it"
            )
        return
    yield from security_problems(output.security, _CLUSTER)
    for refused in _unsupported(settings):
        yield f"{_SERVERS}={output.bootstrap_servers} does not go with {refused}"


def _unsupported(settings: Settings) -> Iterator[str]:
    """Yield what is set, and why it cannot be with another cluster."""
    start, end = settings.input.start, settings.input.end
    if settings.output.kafka.bootstrap_servers == settings.kafka.bootstrap_servers:
        yield (
            "HAPAX_KAFKA__BOOTSTRAP_SERVERS: they are the same brokers; remove the first, and"
            " outputs go there in one transaction with the group's offsets"
        )
    if settings.engine != "worker":
        yield (
            f"HAPAX_ENGINE={settings.engine}, which writes to the cluster it reads: choose the"
            " worker"
        )
    if settings.guarantee != "exactly_once":
        yield (
            f"HAPAX_GUARANTEE={settings.guarantee}, which keeps no progress there: choose"
            " exactly_once"
        )
    if settings.fast == "on":
        yield (
            "HAPAX_FAST=on: outputs take the path in Python, which sorts them by partition; set it"
            " to auto"
        )
    if (topic := settings.retry_topic) is not None:
        yield (
            f"{_retry(settings)}: records that wait in {topic} would be on a cluster that the group"
            " does not read; remove it"
        )
    kept = "is looked up once and kept with the group's offsets, which do not count there"
    if start not in {"earliest", "refuse"}:
        yield f"HAPAX_INPUT__START={start}: the place {kept}; choose earliest or refuse"
    if end is not None:
        yield f"HAPAX_INPUT__END={end}: the end {kept}; remove it"


def claim_store_problems(dedup: DedupSettings) -> Iterator[str]:
    if dedup.claims_url is None:
        return
    kind = kind_of(dedup.claims_url)
    if not kind.transport(dedup.claims_url).encrypted:
        # Left alone, the service would connect without the protection that was asked for.
        for name in _given(dedup, ("CA_FILE", "CERTIFICATE_FILE", "KEY_FILE", "KEY_PASSWORD")):
            yield (
                f"{_DEDUP}{name} is set but {_CLAIMS_URL} has no TLS: begin the address with "
                f"{kind.tls_scheme}:// or remove the other"
            )
    yield from _both(dedup, _DEDUP, (*_CERTIFICATE, ("KEY_PASSWORD", "KEY_FILE")))


def registry_problems(registry: RegistrySettings) -> Iterator[str]:
    client = zip(_OAUTH, (*_OAUTH[1:], _OAUTH[0]), strict=True)
    pairs = (("USER", "PASSWORD"), ("PASSWORD", "USER"), ("OAUTH_SCOPE", _OAUTH[0]), *client)
    yield from _both(registry, _REGISTRY, (*pairs, *_CERTIFICATE))
    tokens = _given(registry, ("TOKEN", "OAUTH_TOKEN_URL"))
    logins = [*tokens, *_given(registry, ("USER",))]
    if len(logins) > 1:
        yield (
            f"{_REGISTRY}{logins[0]} is set, and so is {_REGISTRY}{logins[1]}: a request has one"
            " login; unset one of them"
        )
    for name in () if tokens else _given(registry, ("LOGICAL_CLUSTER", "IDENTITY_POOL")):
        yield (
            f"{_REGISTRY}{name} is set, but neither {_REGISTRY}TOKEN nor {_REGISTRY}{_OAUTH[0]}:"
            " it goes with a token; set one or remove it"
        )


def _given(group: SettingsGroup, names: Iterable[str]) -> list[str]:
    return [name for name in names if getattr(group, name.lower()) is not None]


def _both(
    group: SettingsGroup, prefix: str, pairs: Iterable[tuple[str, str]], *, shown: bool = False
) -> Iterator[str]:
    """Yield each of a pair that is set without the other; ``shown``: with its value."""
    for name, needed in pairs:
        if _given(group, (name, needed)) == [name]:
            value = f"={getattr(group, name.lower())}" if shown else ""
            yield (
                f"{prefix}{name}{value} needs {prefix}{needed}, which is unset: set both or neither"
            )
