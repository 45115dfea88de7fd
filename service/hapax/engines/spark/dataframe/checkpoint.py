"""What a checkpoint says of its query, and which logs its offsets belong to.

Spark keeps offsets by name and number only; the logs that they are of are kept next to them, and
compared at each start and before each micro-batch is published. An id that was the same before a
micro-batch was planned and after it was read was the same in between.

Spark's source is Kafka's Java client. Certificates travel to it as text, not as paths, so that
executors need no files. Spark shows options in plans and logs; ``REDACTED`` hides those that hold
secrets.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec
from pyarrow import fs

from hapax.cluster.micro_batches import InputLogs, require_uncut
from hapax.core.errors import ConfigurationError, PositionLostError, StopError
from hapax.engines.spark.dataframe.staging import Place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hapax.cluster.micro_batches import Anchors
    from hapax.core.records import Progress, TopicPartition
    from hapax.settings import SecuritySettings, Settings

REDACTED = "(?i)secret|password|passwd|token|access[.]?key|jaas|keystore|url"

ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
ALLOWED_FILES = "org.apache.kafka.sasl.oauthbearer.allowed.files"

_SECURITY_PACKAGE = "org.apache.kafka.common.security"
_LOGIN_MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule",
}
_FINGERPRINT_CHARS = 32
_LOGS = "hapax.json"
Kind = TypeVar("Kind")


def source_options(settings: Settings) -> dict[str, str]:
    return {
        "subscribe": ",".join(settings.input.topics),
        # Only for a new checkpoint; refuse has been judged before. New partitions are read from
        # their beginning.
        "startingOffsets": "latest" if settings.input.start == "latest" else "earliest",
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(settings.spark.batch_records_max),
        **{f"kafka.{name}": value for name, value in client_properties(settings).items()},
    }


def client_properties(settings: Settings) -> dict[str, str]:
    """Return the properties of the Java client: where the brokers are, and how to talk to them."""
    security = settings.kafka.security
    return {
        "bootstrap.servers": settings.kafka.bootstrap_servers,
        "security.protocol": security.protocol.upper(),
        "isolation.level": "read_committed",
        **_login(security),
        **_certificates(security),
    }


def session_properties(settings: Settings) -> dict[str, str]:
    name = "spark.executor.extraJavaOptions"
    option, properties = java_option(settings), settings.spark.properties
    if option is None:
        return properties
    return properties | {name: f"{properties.get(name, '')} {option}".strip()}


def java_option(settings: Settings) -> str | None:
    """Return the options that let the Java client ask for a token; None where it asks for none."""
    allowed = java_properties(settings.kafka.security)
    return " ".join(f"-D{name}={value}" for name, value in allowed.items()) or None


def java_properties(security: SecuritySettings) -> dict[str, str]:
    """Kafka's client asks only places that its JVM names, and each executor is a JVM of its own."""
    url = _token_url(security)
    files = {} if security.oauth_token_file is None else {ALLOWED_FILES: security.oauth_token_file}
    return {} if url is None else {ALLOWED_URLS: url, **files}


def _token_url(security: SecuritySettings) -> str | None:
    """Return where the Java client finds its token; a file as well."""
    file = security.oauth_token_file
    return security.oauth_token_url if file is None else Path(file).absolute().as_uri()


def _login(security: SecuritySettings) -> dict[str, str]:
    mechanism = security.sasl_mechanism
    if mechanism is None:
        return {}
    properties: dict[str, str] = {"sasl.mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        secret = security.oauth_client_secret
        words = {
            "clientId": security.oauth_client_id,
            "clientSecret": secret and secret.get_secret_value(),
            "scope": security.oauth_scope,
        }
        if security.oauth_ca_file is not None:
            words |= {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": _text("OAUTH_CA_FILE", security.oauth_ca_file),
            }
        properties |= {
            "sasl.oauthbearer.token.endpoint.url": _token_url(security) or "",
            "sasl.login.callback.handler.class": (
                f"{_SECURITY_PACKAGE}.oauthbearer.OAuthBearerLoginCallbackHandler"
            ),
        }
    else:
        password = security.password
        words = {
            "username": security.username,
            "password": password and password.get_secret_value(),
        }
    said = " ".join(f"{name}={_quoted(value)}" for name, value in words.items() if value)
    module = f"{_SECURITY_PACKAGE}.{_LOGIN_MODULES[mechanism]}"
    return properties | {"sasl.jaas.config": f"{module} required {said};"}


def _certificates(security: SecuritySettings) -> dict[str, str]:
    properties: dict[str, str] = {}
    if security.ca_file is not None:
        properties |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": _text("CA_FILE", security.ca_file),
        }
    if security.certificate_file is not None and security.key_file is not None:
        properties |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _text("CERTIFICATE_FILE", security.certificate_file),
            "ssl.keystore.key": _text("KEY_FILE", security.key_file),
        }
    if security.key_password is not None:
        properties["ssl.key.password"] = security.key_password.get_secret_value()
    return properties


def _text(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(
            [f"HAPAX_KAFKA__SECURITY__{name}={path} cannot be read: {error}"]
        ) from error


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    escaped = escaped.replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


class InputLookup(Protocol):
    """What asks the brokers; see ``hapax.kafka.read.input_logs``."""

    def look(self, topics: Iterable[str]) -> InputLogs:
        """Return what brokers say of these topics now."""

    def cut(self, anchors: Anchors) -> dict[TopicPartition, str]:
        """Return the partitions whose log was cut off below their anchor, and what was said."""


class Checkpoint:
    """The folder of one query."""

    def __init__(self, address: str) -> None:
        self._place = Place(address)

    def query_id(self) -> str | None:
        found = self._decoded("metadata", _Metadata)
        return None if found is None else found.id

    def fingerprint(self, number: int) -> str:
        """Hash ``offsets/<number>``, which Spark writes once and plans every repetition from."""
        content = _read(self._place, "offsets", str(number))
        if content is None:
            path = self._place.path("offsets", str(number))
            raise StopError(
                f"{path} is missing, although Spark writes it before micro-batch {number} runs:"
                " name the query's checkpoint in full, with its scheme (option checkpointLocation)"
            )
        return hashlib.sha256(content).hexdigest()[:_FINGERPRINT_CHARS]

    def offsets(self, number: int) -> Progress:
        """Return where a micro-batch ends in Kafka's partitions; {} when that is missing.

        One line for each source, and among them those of other kinds. A topic that is read twice
        has the larger one.
        """
        found: Progress = {}
        for line in (_read(self._place, "offsets", str(number)) or b"").splitlines():
            try:
                topics = msgspec.json.decode(line, type=dict[str, dict[int, int]])
            except msgspec.DecodeError:
                continue
            for topic, ends in topics.items():
                for partition, end in ends.items():
                    found[topic, partition] = max(end, found.get((topic, partition), 0))
        return found

    def committed(self) -> bool:
        where = fs.FileSelector(self._place.path("commits"), allow_not_found=True)
        names = (info.base_name for info in self._place.files.get_file_info(where))
        return any(name.isdecimal() for name in names)

    def logs(self) -> InputLogs | None:
        """Return which logs it belongs to; None: no version that keeps them has used it."""
        return self._decoded(_LOGS, InputLogs)

    def keep(self, logs: InputLogs) -> None:
        """Write which logs it belongs to, whole or not at all, unless they are known."""
        if logs == self.logs():
            return
        path = self._place.path(_LOGS)
        self._place.write(f"{path}.new", msgspec.json.encode(logs))
        self._place.files.move(f"{path}.new", path)
        self._place.sync(path)

    def followed(self, lookup: InputLookup, topics: Iterable[str], last: int) -> InputLogs:
        """Return which logs it belongs to now, which is to be kept once that is certain.

        ``last``: the micro-batch that was published last; -1: none. Raises PositionLostError when
        the input is of another cluster, topic or history by now, BatchAbortedError when brokers do
        not answer.
        """
        now, known = lookup.look(topics), self.logs()
        if known is None:
            return now
        known.require_same(now)
        offsets = self.offsets(last)
        if anchors := known.anchors(now, offsets):
            require_uncut(lookup.cut(anchors), offsets)
        return known.and_now(now)

    def _decoded(self, name: str, kind: type[Kind]) -> Kind | None:
        content = _read(self._place, name)
        try:
            return None if content is None else msgspec.json.decode(content, type=kind)
        except msgspec.DecodeError as error:
            raise PositionLostError(
                f"{self._place.path(name)} is damaged: restore the checkpoint from a copy, or see"
                " docs/dataframes.md, section Stops"
            ) from error


class _Metadata(msgspec.Struct):
    id: str


def _read(place: Place, *names: str) -> bytes | None:
    try:
        with place.files.open_input_stream(place.path(*names)) as file:
            return bytes(file.read())
    except FileNotFoundError:
        return None
