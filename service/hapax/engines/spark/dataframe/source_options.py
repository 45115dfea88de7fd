"""Our settings in the words of Kafka's Java client, which Spark's source is.

Certificates travel as text, not as paths, so that executors need no files. Spark shows options in
plans and logs; ``REDACTED`` hides those that hold secrets.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hapax.core.errors import ConfigurationError

if TYPE_CHECKING:
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


def source_options(settings: Settings) -> dict[str, str]:
    """Return the options of Spark's Kafka source for our input."""
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
    """Return the user's properties, with what executors need to fetch tokens."""
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
    """Return what a JVM must say of the places of tokens.

    Kafka's client asks nobody whom its JVM does not name, and each executor is a JVM of its own.
    """
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
    """Return a JAAS string: in quotes, with quotes, backslashes and line breaks escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    escaped = escaped.replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
