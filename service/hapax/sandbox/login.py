"""A user of a guarded sandbox with all rights, and the variables to log in as that user."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

from hapax.core.rights import Right
from hapax.sandbox.guard import LOGIN

if TYPE_CHECKING:
    from pathlib import Path

    from hapax.sandbox.sandbox import Sandbox

USER = "hapax"
MECHANISM = "SCRAM-SHA-512"
_WHY = "to try things on"
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
