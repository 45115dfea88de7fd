"""Checks of what is sent unencrypted, and of certificates that are not verified."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.claims.store import kind_of
from hapax.kafka.connection import split
from hapax.operations.doctor.check import (
    check,
    listed,
    ok,
    warn,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.operations.doctor.check import Case, CheckResult

URL: Final = "HAPAX_DEDUP__REDIS_URL"


@check(
    "kafka-plaintext",
    "`HAPAX_KAFKA__SECURITY__PROTOCOL` and where the brokers are",
    "WARN: plaintext or sasl_plaintext beyond this machine.",
    needs="process",
    at="each",
)
def _plaintext(case: Case) -> Iterator[CheckResult]:
    protocol = case.settings.kafka.security.protocol
    name = f"{case.prefix}SECURITY__PROTOCOL"
    met = (*case.kafka.bootstrap, *case.kafka.listeners.values())
    dead = {each.place for each in met if each.problem is not None}
    places = dict.fromkeys(
        [
            *case.settings.kafka.bootstrap_servers.split(","),
            *(each.place for each in case.kafka.listeners.values()),
        ]
    )
    # Nothing is sent to an address that does not answer; another check reports it.
    outside = [one for one in places if one not in dead and not _loopback(split(one)[0])]
    if not protocol.endswith("plaintext"):
        yield ok(f"connections to Kafka are encrypted ({name}={protocol})")
    elif not outside:
        yield ok(f"{name}={protocol}, within this machine")
    else:
        login = protocol.startswith("sasl") and case.settings.kafka.security.sasl_mechanism
        open_login = f", and the login of {login}" if login in {"PLAIN", "OAUTHBEARER"} else ""
        yield warn(
            f"{name}={protocol}: records{open_login} are sent unencrypted to {listed(outside)}",
            f"set {name} to {'sasl_ssl' if login else 'ssl'}, and open a listener for it",
        )


@check(
    "kafka-verification",
    "`enable.ssl.certificate.verification`, `ssl.endpoint.identification.algorithm`",
    "WARN: certificates of brokers, or the names in them, are not verified.",
    needs="process",
    at="each",
)
def _verification(case: Case) -> Iterator[CheckResult]:
    settings = case.settings
    if not settings.kafka.security.protocol.endswith("ssl"):
        yield ok("without TLS there is nothing to verify")
        return
    given = settings.kafka.properties
    wrong = [
        f"{name}={given[name]}"
        for name, value in (
            ("enable.ssl.certificate.verification", "false"),
            ("ssl.endpoint.identification.algorithm", "none"),
        )
        if given.get(name, "").lower() == value
    ]
    if wrong:
        yield warn(
            f"{case.prefix}PROPERTIES: {listed(wrong)}: an attacker on the network can impersonate "
            "a broker",
            f"remove it, and name the authorities in {case.prefix}SECURITY__CA_FILE",
        )
    else:
        yield ok("the brokers' certificates and their names are verified")


@check(
    "redis-encryption",
    "the scheme and the options of `HAPAX_DEDUP__REDIS_URL`",
    "WARN: no TLS beyond this machine, or TLS that verifies nothing (`ssl_cert_reqs`, "
    "`ssl_check_hostname`).",
    needs="process",
)
def _claim_store(case: Case) -> Iterator[CheckResult]:
    url = case.settings.dedup.claims_url
    if url is None:
        yield ok(f"{URL} is unset")
        return
    kind = kind_of(url)
    way = kind.transport(url)
    outside = [host for host, _port in way.places if way.encrypted or not _loopback(host)]
    if not outside:
        yield ok("the claim store is within this machine")
    elif not way.encrypted:
        yield warn(
            f"{URL} has no TLS: password and ids are sent unencrypted to {listed(outside)}",
            f"let the address begin with {kind.tls_scheme}://, and give {kind.name} a TLS port",
        )
    elif way.unverified:
        yield warn(
            f"{URL}: {listed(way.unverified)}: an attacker on the network can impersonate "
            f"{kind.name}",
            "remove it from the address, and name the authorities in HAPAX_DEDUP__CA_FILE",
        )
    else:
        yield ok(f"the certificate of {kind.name} is verified")


def _loopback(host: str) -> bool:
    return host in {"localhost", "::1"} or host.startswith("127.")
