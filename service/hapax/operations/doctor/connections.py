"""Checks of this process, of its connections, and of what is sent unencrypted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from hapax.claims.store import kind_of
from hapax.kafka.admin.topics import protocol_unserved
from hapax.kafka.connection import split
from hapax.operations.doctor.check import check, fail, listed, ok, unknown, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.operations.doctor.check import CheckContext, CheckResult

LIBRDKAFKA_MIN: Final = (2, 14)
"""docs/non-obvious.md: earlier ones lose or mix records."""
FILES_PER_BROKER, FILES_BESIDE = 8, 128
FILES_USUAL = 1024
KIP_447 = 3
"""Version of TxnOffsetCommit from which on group metadata fence offsets: brokers from 2.5."""
KIP_890 = 5
"""Version of EndTxn of brokers that know transactions of the second kind: from 4.0."""
SILENCE = ("no answer", "_TIMED_OUT", "_TRANSPORT", "_WAIT_COORD")
"""How reasons begin where no answer came; others are refusals."""
ASKED = ("settings", "offsets")
"""What each broker is asked for."""
URL: Final = "HAPAX_DEDUP__REDIS_URL"


@check("settings", needs="process", now=True)
def _settings(_context: CheckContext) -> Iterator[CheckResult]:
    yield ok("the settings can be read and do not contradict each other")


@check("client-library", needs="process")
def _client_library(context: CheckContext) -> Iterator[CheckResult]:
    found = context.process.librdkafka
    version = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    fix = "install confluent-kafka 2.16.1 or later"
    if version < LIBRDKAFKA_MIN:
        yield fail(f"librdkafka {found} loses or mixes records in rare cases", fix)
    else:
        yield ok(f"librdkafka {found}")


@check("file-descriptors", needs="process")
def _files(context: CheckContext) -> Iterator[CheckResult]:
    most = context.process.files_max
    needed = FILES_BESIDE + FILES_PER_BROKER * len(context.kafka.listeners)
    if most is None or most >= max(FILES_USUAL, needed):
        yield ok(f"this process may open {'any number of' if most is None else most} files")
        return
    saw = f"this process may open {most} files; connections count as files"
    fix = f"raise the limit of open files (ulimit -n) to {max(FILES_USUAL, needed)}"
    yield fail(saw, fix) if most < needed else warn(saw, fix)


@check("bootstrap", needs="addresses", now=True)
def _bootstrap(context: CheckContext) -> Iterator[CheckResult]:
    addresses = context.kafka.bootstrap
    dead = [each for each in addresses if each.problem is not None]
    if not dead:
        yield ok(f"{len(addresses)} addresses answer: {listed(each.place for each in addresses)}")
    for each in dead:
        saw = f"{context.prefix}BOOTSTRAP_SERVERS: {each.place}: {each.problem}"
        fix = "fix the address, the DNS or the network, or remove the address"
        yield fail(saw, fix) if len(dead) == len(addresses) else warn(saw, fix)


@check("brokers", needs="addresses", now=True)
def _brokers(context: CheckContext) -> Iterator[CheckResult]:
    kafka = context.kafka
    if all(each.problem for each in kafka.bootstrap):
        yield unknown("no bootstrap address can be reached")
    elif not kafka.listeners:
        yield fail(
            f"a bootstrap address can be reached, but no broker answers there: {kafka.problem}",
            f"check {context.prefix}SECURITY__PROTOCOL, the login, and that it is a port for "
            "clients",
        )
    elif kafka.problem is None and kafka.controller < 0:
        yield warn("the cluster has no controller", "check the controllers of the cluster")
    else:
        yield ok(f"{len(kafka.listeners)} brokers: {listed(kafka.listeners)}")


@check("listeners", needs="addresses", now=True)
def _listeners(context: CheckContext) -> Iterator[CheckResult]:
    listeners = context.kafka.listeners
    if not listeners:
        yield unknown("no broker returned its address")
        return
    sound = True
    for number, each in listeners.items():
        told = (context.kafka.untold.get(f"{what} of broker {number}", "") for what in ASKED)
        silent = next((why for why in told if why.startswith(SILENCE)), "")
        if each.problem is not None:
            sound = False
            yield fail(
                f"broker {number} advertises {each.place}: {each.problem}",
                "fix advertised.listeners of that broker, the DNS, or the network between",
            )
        elif silent:
            sound = False
            yield fail(
                f"broker {number} at {each.place} accepts connections and does not answer: "
                f"{silent}",
                "check that broker: it hangs, is overloaded, or is still starting",
            )
    if sound:
        yield ok(f"every broker answers at {listed(each.place for each in listeners.values())}")


@check("broker-versions")
def _broker_versions(context: CheckContext) -> Iterator[CheckResult]:
    apis = context.kafka.apis
    if not apis:
        yield unknown("the client did not report which requests the brokers support")
        return
    writes = context.settings.mode.transactional and context.side != "input"
    fenced = not writes or apis.get("TxnOffsetCommit", -1) >= KIP_447
    served = context.side == "outputs" or not protocol_unserved(context.settings, apis)
    if not fenced:
        yield fail(
            "a broker is older than 2.5: offsets in transactions are not fenced (KIP-447)",
            "upgrade the brokers to 2.5 or later",
        )
    if not served:
        yield fail(
            "HAPAX_GROUP__PROTOCOL=consumer, but a broker does not serve that protocol (KIP-848)",
            "set HAPAX_GROUP__PROTOCOL=classic, or upgrade the brokers to 4.0 or later",
        )
    if fenced and served:
        recent = "4.0 or later" if apis.get("EndTxn", -1) >= KIP_890 else "2.5 or later"
        yield ok(f"the requests that the brokers support are those of Kafka {recent}")


@check("kafka-plaintext", needs="process", at="each")
def _plaintext(context: CheckContext) -> Iterator[CheckResult]:
    protocol = context.settings.kafka.security.protocol
    name = f"{context.prefix}SECURITY__PROTOCOL"
    advertised = context.kafka.listeners.values()
    met = (*context.kafka.bootstrap, *advertised)
    dead = {each.place for each in met if each.problem is not None}
    given = context.settings.kafka.bootstrap_servers.split(",")
    places = dict.fromkeys([*given, *(each.place for each in advertised)])
    # Nothing is sent to an address that does not answer; another check reports it.
    outside = [one for one in places if one not in dead and not _loopback(split(one)[0])]
    if not protocol.endswith("plaintext"):
        yield ok(f"connections to Kafka are encrypted ({name}={protocol})")
    elif not outside:
        yield ok(f"{name}={protocol}, within this machine")
    else:
        login = protocol.startswith("sasl") and context.settings.kafka.security.sasl_mechanism
        open_login = f", and the login of {login}" if login in {"PLAIN", "OAUTHBEARER"} else ""
        yield warn(
            f"{name}={protocol}: records{open_login} are sent unencrypted to {listed(outside)}",
            f"set {name} to {'sasl_ssl' if login else 'ssl'}, and open a listener for it",
        )


@check("kafka-verification", needs="process", at="each")
def _verification(context: CheckContext) -> Iterator[CheckResult]:
    settings = context.settings
    if not settings.kafka.security.protocol.endswith("ssl"):
        yield ok("without TLS there is nothing to verify")
        return
    given = settings.kafka.properties
    off = {
        "enable.ssl.certificate.verification": "false",
        "ssl.endpoint.identification.algorithm": "none",
    }
    wrong = [f"{name}={given[name]}" for name in off if given.get(name, "").lower() == off[name]]
    if wrong:
        yield warn(
            f"{context.prefix}PROPERTIES: {listed(wrong)}: an attacker on the network can "
            "impersonate a broker",
            f"remove it, and name the authorities in {context.prefix}SECURITY__CA_FILE",
        )
    else:
        yield ok("the brokers' certificates and their names are verified")


@check("redis-encryption", needs="process")
def _claim_store(context: CheckContext) -> Iterator[CheckResult]:
    url = context.settings.dedup.claims_url
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
