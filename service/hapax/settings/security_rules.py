"""Rules about how to talk to brokers, and as whom: of each cluster that settings name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.settings.base import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hapax.settings.kafka import SecuritySettings


def security_problems(security: SecuritySettings, cluster: str) -> Iterator[Problem]:
    """Yield what is wrong; ``cluster``: what the variables of this cluster begin with."""
    yield from _sasl(security, f"{cluster}SECURITY__")
    yield from _tls(security, f"{cluster}SECURITY__")


def _sasl(security: SecuritySettings, prefix: str) -> Iterator[Problem]:
    login = {"USERNAME": security.username, "PASSWORD": security.password}
    oauth = {
        "OAUTH_TOKEN_URL": security.oauth_token_url,
        "OAUTH_CLIENT_ID": security.oauth_client_id,
        "OAUTH_CLIENT_SECRET": security.oauth_client_secret,
    }
    more = {"OAUTH_CA_FILE": security.oauth_ca_file, "OAUTH_SCOPE": security.oauth_scope}
    tokens = {
        "OAUTH_TOKEN_FILE": security.oauth_token_file,
        "OAUTH_MSK_REGION": security.oauth_msk_region,
    }
    if not security.protocol.startswith("sasl_"):
        given = {"SASL_MECHANISM": security.sasl_mechanism, **login, **oauth, **more, **tokens}
        yield from _idle(security, prefix, given, "sasl_ssl")
        return
    if security.sasl_mechanism is None:
        yield Problem(
            (f"{prefix}PROTOCOL", f"{prefix}SASL_MECHANISM"),
            f"{prefix}PROTOCOL={security.protocol} needs {prefix}SASL_MECHANISM, which is unset:"
            " name the mechanism that the brokers offer, or choose ssl or plaintext",
        )
        return
    needed: Mapping[str, object] = login
    if security.sasl_mechanism == "OAUTHBEARER":
        made = [name for name, value in tokens.items() if value is not None]
        needed = {name: tokens[name] for name in made} or oauth
        yield from _two_tokens(prefix, made, {**oauth, **more})
    for name, value in needed.items():
        if value is None:
            yield Problem(
                (f"{prefix}SASL_MECHANISM", prefix + name),
                f"{prefix}SASL_MECHANISM={security.sasl_mechanism} needs {prefix}{name}, which is"
                " unset: set it, or choose another mechanism",
            )


def _two_tokens(prefix: str, made: list[str], fetched: Mapping[str, object]) -> Iterator[Problem]:
    """Refuse a token that would have to come from two places."""
    given = made + [name for name, value in fetched.items() if value is not None]
    if made and len(given) > 1:
        first, second = (prefix + name for name in given[:2])
        yield Problem(
            (first, second),
            f"{first} is set, and so is {second}: a token comes from a file, from AWS or from a "
            "token service; unset one of them",
        )


def _tls(security: SecuritySettings, prefix: str) -> Iterator[Problem]:
    files = {
        "CA_FILE": security.ca_file,
        "CERTIFICATE_FILE": security.certificate_file,
        "KEY_FILE": security.key_file,
    }
    if not security.protocol.endswith("ssl"):
        yield from _idle(security, prefix, files, "ssl")
    for name, needed in (
        ("CERTIFICATE_FILE", "KEY_FILE"),
        ("KEY_FILE", "CERTIFICATE_FILE"),
    ):
        if files[name] is not None and files[needed] is None:
            yield Problem(
                (prefix + name, prefix + needed),
                f"{prefix}{name}={files[name]} needs {prefix}{needed}, which is unset: set "
                "both or neither",
            )
    if security.key_password is not None and security.key_file is None:
        yield Problem(
            (f"{prefix}KEY_PASSWORD", f"{prefix}KEY_FILE"),
            f"{prefix}KEY_PASSWORD is set but {prefix}KEY_FILE is unset: name the key it "
            "belongs to, or remove it",
        )


def _idle(
    security: SecuritySettings, prefix: str, given: Mapping[str, object], wanted: str
) -> Iterator[Problem]:
    # Left alone, the service would connect without the protection that was asked for.
    protocol = security.protocol
    for name, value in given.items():
        if value is not None:
            yield Problem(
                (f"{prefix}PROTOCOL", prefix + name),
                f"{prefix}{name} is set but {prefix}PROTOCOL={protocol} does not use it: set the "
                f"protocol to {wanted} or remove the other",
            )
