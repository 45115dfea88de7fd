"""How a guarded sandbox authenticates clients, by TLS, certificates and passwords; their rights.

A client of the plain listener has no name and all rights: brokers, controllers, and the sandbox's
own requests. Users connect to LOGIN, by SCRAM-SHA-512; one has the rights that it was granted.
"""

from __future__ import annotations

from subprocess import PIPE
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from hapax.sandbox import machine
from hapax.sandbox.machine import SandboxError
from hapax.sandbox.processes import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from hapax.cluster.cluster_state import Right

LOGIN = "LOGIN"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_TIMEOUT_S = 60.0
_ITERATIONS = 4096  # the least that brokers take
ANYBODY = "*"
_DAYS, _CA_DAYS = 90, 3650
# A curve, because its keys cost milliseconds where those of RSA cost a tenth of a second.
_KIND = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
_NAMES = f"subjectAltName=IP:{LOOPBACK},DNS:localhost\n"


class Guard:
    """What servers ask with, and users answer with.

    listeners     of the brokers that authenticate clients, with their protocols
    java_options  of the brokers' JVM
    folder        where all of it lies
    authority     signs certificates that the servers trust, and its own is ``authority.ca_file``
    server        the servers' certificate
    """

    listeners: Mapping[str, str] = MappingProxyType({LOGIN: "SASL_SSL"})
    java_options: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.server = self.authority.issue("server", user="127.0.0.1")
        # Kafka wants certificate and key in one file.
        self._both = folder / "server.both"
        files = (self.server.key_file, self.server.certificate_file)
        self._both.write_bytes(b"".join(file.read_bytes() for file in files))

    def properties(self) -> dict[str, object]:
        return {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            # A session ends after 3 s unless the client logs in again, so that a changed password
            # is noticed.
            "connections.max.reauth.ms": 3000,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._both,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority.ca_file,
            "listener.name.login.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.login.scram-sha-512.sasl.jaas.config": SCRAM,
        }


class IssuedCertificate(NamedTuple):
    """Two PEM files."""

    certificate_file: Path
    key_file: Path


class Authority:
    """Signs certificates; ``ca_file`` is what must be trusted. Everything lies in ``folder``."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.ca_file = folder / "ca.pem"
        self._key = folder / "ca.key"
        self._names = folder / "names.cnf"
        if not self.ca_file.exists():
            self._names.write_text(_NAMES, encoding="ascii")
            openssl(
                *("req", "-x509", *_KIND, "-nodes", "-days", str(_CA_DAYS)),
                *("-subj", "/CN=sandbox authority", "-keyout", self._key, "-out", self.ca_file),
            )

    def issue(
        self, name: str, *, user: str | None = None, days: int = _DAYS, password: str | None = None
    ) -> IssuedCertificate:
        """Return a certificate for 127.0.0.1 and localhost, in files of this name.

        user      its common name; default: ``name``
        days      until it expires; -1: it has expired
        password  of the key; None: the key is not encrypted
        """
        request = self._folder / f"{name}.csr"
        made = IssuedCertificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        lock = ["-nodes"] if password is None else ["-passout", f"pass:{password}"]
        subject = ("-subj", f"/CN={user or name}")
        openssl("req", *_KIND, *lock, *subject, "-keyout", made.key_file, "-out", request)
        openssl(
            *("x509", "-req", "-in", request, "-days", str(days), "-out", made.certificate_file),
            *("-CA", self.ca_file, "-CAkey", self._key, "-CAcreateserial"),
            *("-extfile", self._names),
        )
        return made


def openssl(*words: str | Path) -> None:
    done = machine.run([machine.openssl(), *words], _TIMEOUT_S, stderr=PIPE)
    if done.returncode:
        raise SandboxError(f"openssl {words[0]} failed: {done.stderr[-500:]}")


class Rights:
    """Asks the brokers through the listener on which everything is allowed.

    Every call returns when the brokers have accepted; it is in force some milliseconds later.
    """

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    def set_password(self, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> None:
        """Make a user of one SCRAM mechanism, or change its password."""
        kind = ScramMechanism[mechanism.replace("-", "_")]
        credential = ScramCredentialInfo(kind, _ITERATIONS)
        change = UserScramCredentialUpsertion(user, credential, password.encode())
        self._admin.alter_user_scram_credentials([change])[user].result(_TIMEOUT_S)

    def allow(self, user: str, *rights: Right) -> None:
        bindings = [AclBinding(*_words(user, right)) for right in rights]
        for answer in self._admin.create_acls(bindings).values():
            answer.result(_TIMEOUT_S)


def _words(user: str, right: Right) -> tuple[Any, ...]:
    # The client has kept the old term for the cluster.
    resource = "BROKER" if right.resource == "CLUSTER" else right.resource
    return (
        ResourceType[resource],
        right.name,
        ResourcePatternType[right.pattern],
        f"User:{user}",
        ANYBODY,
        AclOperation[right.operation],
        AclPermissionType.ALLOW,
    )
