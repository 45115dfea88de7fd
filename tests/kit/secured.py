"""Ways to a guarded sandbox: who we are, what we set, and what we may do."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from hapax.cluster.cluster_state import Right
from hapax.operations.doctor.acls import kafka_rights, state_topics
from hapax.sandbox import Sandbox
from hapax.sandbox.guard import LOGIN
from hapax.settings import Settings, load_settings
from tests.kit.guarded import MUTUAL, PLAIN_PASSWORD, PLAIN_USER, TLS, tokens_of
from tests.kit.pipeline_under_test import PipelineUnderTest

KEY_PASSWORD = "open-the-key-sesame"  # noqa: S105 - of a certificate that lives for minutes
SCRAM_PASSWORD = 'open "sesame" \\ door'  # noqa: S105 - characters that quoting must survive
INSTANCE = "w-0"
WAYS = (
    "TLS",
    "certificate",
    "locked key",
    "PLAIN",
    "SCRAM-SHA-256",
    "SCRAM-SHA-512",
    "tokens",
    "token file",
)


class Way(NamedTuple):
    """One way in. ``user`` is None where brokers know of none; ``settings`` as a pipeline's."""

    user: str | None
    settings: dict[str, Any]


def way(sandbox: Sandbox, name: str) -> Way:
    """Return a way, with its user made known to the brokers."""
    if name == "TLS":
        return Way(None, security(sandbox, TLS, PROTOCOL="ssl"))
    if name in {"certificate", "locked key"}:
        return _by_certificate(sandbox, name.replace(" ", "-"), locked=name == "locked key")
    if name == "tokens":
        tokens = tokens_of(sandbox)
        oauth = {
            "OAUTH_TOKEN_URL": tokens.url,
            "OAUTH_CLIENT_ID": tokens.client_id,
            "OAUTH_CLIENT_SECRET": tokens.client_secret,
            "OAUTH_CA_FILE": str(sandbox.guard.authority.ca_file),
        }
        return Way(tokens.client_id, login(sandbox, "OAUTHBEARER", **oauth))
    if name == "token file":
        tokens, file = tokens_of(sandbox), token_file(sandbox)
        file.write_text(f"{tokens.token()}\n", encoding="ascii")
        token = {"OAUTH_TOKEN_FILE": str(file)}
        return Way(tokens.client_id, login(sandbox, "OAUTHBEARER", **token))
    if name == "PLAIN":
        known = {"USERNAME": PLAIN_USER, "PASSWORD": PLAIN_PASSWORD}
        return Way(PLAIN_USER, login(sandbox, "PLAIN", **known))
    user = f"hapax-{name.lower()}"
    sandbox.rights.set_password(user, SCRAM_PASSWORD, name)
    return Way(user, login(sandbox, name, USERNAME=user, PASSWORD=SCRAM_PASSWORD))


def token_file(sandbox: Sandbox) -> Path:
    """Return where the way "token file" looks for its token."""
    return sandbox.guard.authority.ca_file.with_name("token")


def login(sandbox: Sandbox, mechanism: str, **more: str) -> dict[str, Any]:
    return security(sandbox, LOGIN, PROTOCOL="sasl_ssl", SASL_MECHANISM=mechanism, **more)


def _by_certificate(sandbox: Sandbox, user: str, *, locked: bool) -> Way:
    ours = sandbox.guard.authority.issue(user, password=KEY_PASSWORD if locked else None)
    files = {"CERTIFICATE_FILE": str(ours.certificate_file), "KEY_FILE": str(ours.key_file)}
    lock = {"KEY_PASSWORD": KEY_PASSWORD} if locked else {}
    return Way(user, security(sandbox, MUTUAL, PROTOCOL="ssl", **files, **lock))


def security(sandbox: Sandbox, listener: str, **more: str) -> dict[str, Any]:
    """Return the settings of a way over TLS."""
    known = {"CA_FILE": str(sandbox.guard.authority.ca_file), **more}
    settings: dict[str, Any] = {f"KAFKA__SECURITY__{name}": text for name, text in known.items()}
    return settings | {"KAFKA__BOOTSTRAP_SERVERS": sandbox.kafka.guarded(listener)}


def settings_of(route: PipelineUnderTest, **more: str | None) -> Settings:
    environment = route.environment(**more) | {"HAPAX_INSTANCE": INSTANCE}
    return load_settings({name: text for name, text in environment.items() if "HAPAX" in name})


def stand_in(
    monkeypatch: pytest.MonkeyPatch, generate_auth_token: Callable[[str], tuple[str, int]]
) -> None:
    """Put something in the place of AWS' signer."""
    signer = SimpleNamespace(
        MSKAuthTokenProvider=SimpleNamespace(generate_auth_token=generate_auth_token)
    )
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", signer)


def needed(route: PipelineUnderTest, **more: str | None) -> tuple[Right, ...]:
    settings = settings_of(route, **more)
    rights = kafka_rights(settings, state=state_topics(settings))
    return tuple(right for right in rights if not right.optional)
