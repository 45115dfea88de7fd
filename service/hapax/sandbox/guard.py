"""How a guarded sandbox authenticates clients: its listeners, certificates, users and tokens.

| listener | encryption | the client is |
|---|---|---|
| GUARDED  | none       | user and password, SCRAM-SHA-256 |
| TLS      | TLS        | ANONYMOUS, as on the plain listener, and with all rights |
| MUTUAL   | TLS        | the common name of its certificate |
| LOGIN    | TLS        | PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER |

A client of the plain listener has no name and all rights: brokers, controllers, and
the sandbox's own requests. Users connect to the others and have the rights that they are granted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.sandbox.oauth import AUDIENCE, ISSUER, TokenServer
from hapax.sandbox.tls import Authority

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

GUARDED, TLS, MUTUAL, LOGIN = "GUARDED", "TLS", "MUTUAL", "LOGIN"
PROTOCOLS: Mapping[str, str] = {
    GUARDED: "SASL_PLAINTEXT",
    TLS: "SSL",
    MUTUAL: "SSL",
    LOGIN: "SASL_SSL",
}
PLAIN_USER, PLAIN_PASSWORD = "hapax-plain", "plain-in-the-sandbox-only"
"""The one user of PLAIN: brokers read its users from their own settings, at their start."""

_MODULES = "org.apache.kafka.common.security"
_SCRAM = f"{_MODULES}.scram.ScramLoginModule required;"
_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed"


class Guard:
    """What servers ask with, and users answer with.

    folder     where all of it lies
    authority  signs certificates that the servers trust, and its own is ``authority.ca_file``
    server     the servers' certificate
    tokens     the token service
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.server = self.authority.issue("server", user="127.0.0.1")
        # Kafka wants certificate and key in one file.
        self._both = folder / "server.both"
        files = (self.server.key_file, self.server.certificate_file)
        self._both.write_bytes(b"".join(file.read_bytes() for file in files))
        self.tokens = TokenServer(folder, self.server)

    def close(self) -> None:
        """End the token service."""
        self.tokens.close()

    @property
    def java_options(self) -> tuple[str, ...]:
        """Options of the brokers' JVM: where the key of the tokens may be read from."""
        url = self.tokens.jwks_file.as_uri()
        return (
            f"-D{_ALLOWED}.urls={url}",
            f"-D{_ALLOWED}.files={self.tokens.jwks_file}",
        )

    def properties(self) -> dict[str, object]:
        """Return the brokers' properties for all listeners."""
        properties: dict[str, object] = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            # A session ends after 3 s unless the client logs in again, so that a changed password
            # is noticed.
            "connections.max.reauth.ms": 3000,
            "listener.name.guarded.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.guarded.scram-sha-256.sasl.jaas.config": _SCRAM,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._both,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority.ca_file,
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/",
        }
        return properties | {
            f"listener.name.login.{name}": value for name, value in self._logins().items()
        }

    def _logins(self) -> dict[str, object]:
        tokens = f"{_MODULES}.oauthbearer"
        return {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "plain.sasl.jaas.config": (
                f'{_MODULES}.plain.PlainLoginModule required user_{PLAIN_USER}="{PLAIN_PASSWORD}";'
            ),
            "scram-sha-256.sasl.jaas.config": _SCRAM,
            "scram-sha-512.sasl.jaas.config": _SCRAM,
            "oauthbearer.sasl.jaas.config": f"{tokens}.OAuthBearerLoginModule required;",
            "oauthbearer.sasl.server.callback.handler.class": (
                f"{tokens}.OAuthBearerValidatorCallbackHandler"
            ),
            "oauthbearer.sasl.oauthbearer.jwks.endpoint.url": self.tokens.jwks_file.as_uri(),
            "oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
            "oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
        }
