"""Rules of logins and certificates: of brokers, claim store and registry; and of two clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.claims.store import kind_of
from hapax.settings.base import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hapax.settings.kafka import SecuritySettings
    from hapax.settings.model import Settings
    from hapax.settings.pipeline import DedupSettings, RegistrySettings

_DEDUP: Final = "HAPAX_DEDUP__"
_CLAIMS_URL: Final = f"{_DEDUP}REDIS_URL"
_REGISTRY: Final = "HAPAX_REGISTRY__"
_CLUSTER: Final = "HAPAX_OUTPUT__KAFKA__"
_SERVERS: Final = f"{_CLUSTER}BOOTSTRAP_SERVERS"
_CERTIFICATE: Final = (("CERTIFICATE_FILE", "KEY_FILE"), ("KEY_FILE", "CERTIFICATE_FILE"))


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
    yield from _both(prefix, files, _CERTIFICATE, shown=True)
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


def target_problems(settings: Settings) -> Iterator[Problem]:
    output = settings.output.kafka
    if not settings.elsewhere:
        # Left alone, the service would write to the cluster of the input.
        given = {"PROPERTIES": output.properties} | output.security.model_dump(
            exclude_defaults=True
        )
        for name in (name.upper() for name, value in given.items() if value):
            variable = _CLUSTER + (name if name == "PROPERTIES" else f"SECURITY__{name}")
            yield Problem(
                (_SERVERS, variable),
                f"{variable} is set but {_SERVERS} is unset: name the brokers of the other"
                " cluster, or remove it",
            )
        return
    yield from security_problems(output.security, _CLUSTER)
    yield from _unsupported(settings)


def _unsupported(settings: Settings) -> Iterator[Problem]:
    start, end, topic = settings.input.start, settings.input.end, settings.retry_topic
    retry = "HAPAX_RETRY__TOPIC" if settings.retry.topic else "HAPAX_RETRY__LATER"
    refused = (
        (
            settings.output.kafka.bootstrap_servers == settings.kafka.bootstrap_servers,
            "HAPAX_KAFKA__BOOTSTRAP_SERVERS",
            (
                ": they are the same brokers; remove the first, and outputs go there in one"
                " transaction with the group's offsets"
            ),
        ),
        (
            settings.engine != "worker",
            "HAPAX_ENGINE",
            f"={settings.engine}, which writes to the cluster it reads: choose the worker",
        ),
        (
            settings.guarantee != "exactly_once",
            "HAPAX_GUARANTEE",
            f"={settings.guarantee}, which keeps no progress there: choose exactly_once",
        ),
        (
            settings.fast == "on",
            "HAPAX_FAST",
            "=on: outputs take the path in Python, which sorts them by partition; set it to auto",
        ),
        (
            topic is not None,
            retry,
            (
                f": records that wait in {topic} would be on a cluster that the group does not"
                " read; remove it"
            ),
        ),
        (
            start not in {"earliest", "refuse"},
            "HAPAX_INPUT__START",
            (
                f"={start}: the place is looked up once and kept with the group's offsets, which"
                " do not count there; choose earliest or refuse"
            ),
        ),
        (
            end is not None,
            "HAPAX_INPUT__END",
            (
                f"={end}: the end is looked up once and kept with the group's offsets, which do"
                " not count there; remove it"
            ),
        ),
    )
    for broken, variable, why in refused:
        if broken:
            yield Problem(
                (_SERVERS, variable),
                f"{_SERVERS}={settings.output.kafka.bootstrap_servers} does not go with {variable}"
                f"{why}",
            )


def claim_store_problems(dedup: DedupSettings) -> Iterator[Problem]:
    if dedup.claims_url is None:
        return
    files = {
        "CA_FILE": dedup.ca_file,
        "CERTIFICATE_FILE": dedup.certificate_file,
        "KEY_FILE": dedup.key_file,
        "KEY_PASSWORD": dedup.key_password,
    }
    kind = kind_of(dedup.claims_url)
    encrypted = kind.transport(dedup.claims_url).encrypted
    for name, value in files.items():
        # Left alone, the service would connect without the protection that was asked for.
        if value is not None and not encrypted:
            yield Problem(
                (_CLAIMS_URL, _DEDUP + name),
                f"{_DEDUP}{name} is set but {_CLAIMS_URL} has no TLS: begin the address with "
                f"{kind.tls_scheme}:// or remove the other",
            )
    yield from _both(_DEDUP, files, (*_CERTIFICATE, ("KEY_PASSWORD", "KEY_FILE")))


def registry_problems(registry: RegistrySettings) -> Iterator[Problem]:
    given = {
        "USER": registry.user,
        "PASSWORD": registry.password,
        "CERTIFICATE_FILE": registry.certificate_file,
        "KEY_FILE": registry.key_file,
    }
    pairs = (("USER", "PASSWORD"), ("PASSWORD", "USER"), *_CERTIFICATE)
    yield from _both(_REGISTRY, given, pairs)
    if registry.token is not None and registry.user is not None:
        yield Problem(
            (f"{_REGISTRY}TOKEN", f"{_REGISTRY}USER"),
            f"{_REGISTRY}TOKEN is set, and so is {_REGISTRY}USER: a request has one login; unset"
            " one of them",
        )


def _both(
    prefix: str,
    given: Mapping[str, object],
    pairs: Iterable[tuple[str, str]],
    *,
    shown: bool = False,
) -> Iterator[Problem]:
    """Yield each of a pair that is set without the other; ``shown``: with its value."""
    for name, needed in pairs:
        if given[name] is not None and given[needed] is None:
            value = f"={given[name]}" if shown else ""
            yield Problem(
                (prefix + name, prefix + needed),
                f"{prefix}{name}{value} needs {prefix}{needed}, which is unset: set both or"
                " neither",
            )
