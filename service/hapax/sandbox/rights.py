"""Users of a guarded sandbox, and what they may do. A user is granted nothing at first."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from hapax.core.cluster_state import Right
from hapax.sandbox.broker import metadata_client
from hapax.sandbox.guard import LOGIN

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from hapax.sandbox.sandbox import Sandbox

_TIMEOUT_S = 30.0
_ITERATIONS = 4096  # the least that brokers take
ANYBODY = "*"
USER = "hapax"
MECHANISM = "SCRAM-SHA-512"
_WHY = "to try things on"


class Rights:
    """Asks the brokers through the listener on which everything is allowed.

    Every call returns when the brokers have accepted; it is in force some milliseconds later.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._admin: AdminClient = metadata_client(bootstrap_servers)

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

    def withdraw(self, user: str, *rights: Right) -> int:
        """Take back what was allowed; return how many grants went."""
        chosen = [AclBindingFilter(*_words(user, right)) for right in rights]
        answers = self._admin.delete_acls(chosen).values()
        return sum(len(answer.result(_TIMEOUT_S)) for answer in answers)


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


_EVERYTHING = (
    *(Right(kind, "*", "ALL", _WHY) for kind in ("TOPIC", "GROUP", "TRANSACTIONAL_ID")),
    Right("CLUSTER", "kafka-cluster", "ALL", _WHY),
)


def secure_environment(sandbox: Sandbox, *, redis: bool) -> dict[str, str]:
    """Create the user; return the variables with which Hapax logs in. Secrets are in files."""
    folder, ca_file = sandbox.guard.folder, str(sandbox.guard.authority.ca_file)
    password = secrets.token_urlsafe(18)
    sandbox.rights.set_password(USER, password, MECHANISM)
    sandbox.rights.allow(USER, *_EVERYTHING)
    security = {
        "PROTOCOL": "sasl_ssl",
        "SASL_MECHANISM": MECHANISM,
        "USERNAME": USER,
        "PASSWORD_FILE": _kept(folder / "kafka-password", password),
        "CA_FILE": ca_file,
    }
    variables = {"HAPAX_KAFKA__BOOTSTRAP_SERVERS": sandbox.kafka.guarded(LOGIN)}
    variables |= {f"HAPAX_KAFKA__SECURITY__{name}": text for name, text in security.items()}
    if redis:
        sandbox.redis.allow(f"user {USER} reset on >PASSWORD ~hapax* +@all", password)
        url = sandbox.redis.tls_url(USER, password)
        variables["HAPAX_DEDUP__REDIS_URL_FILE"] = _kept(folder / "redis-url", url)
        variables["HAPAX_DEDUP__CA_FILE"] = ca_file
    return variables


def _kept(path: Path, secret: str) -> str:
    """Write a file that no other user may read; return its path."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{secret}\n")
    return str(path)
