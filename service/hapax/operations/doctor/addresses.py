"""Checks of the way to the brokers, and of what they can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.core.cluster_state import CONSUMER_PROTOCOL, KIP_848
from hapax.operations.doctor.check import check, fail, listed, ok, unknown, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.operations.doctor.check import Case, CheckResult

KIP_447 = 3
"""Version of TxnOffsetCommit from which on group metadata fence offsets: brokers from 2.5."""
KIP_890 = 5
"""Version of EndTxn of brokers that know transactions of the second kind: from 4.0."""

SILENCE = ("no answer", "_TIMED_OUT", "_TRANSPORT", "_WAIT_COORD")
"""How reasons begin where no answer came; others are refusals."""


@check(
    "bootstrap",
    "every address in `HAPAX_KAFKA__BOOTSTRAP_SERVERS`: name service and TCP",
    "FAIL: none can be reached. WARN: some cannot.",
    needs="addresses",
    now=True,
)
def _bootstrap(case: Case) -> Iterator[CheckResult]:
    addresses = case.kafka.bootstrap
    dead = [each for each in addresses if each.problem is not None]
    if not dead:
        yield ok(f"{len(addresses)} addresses answer: {listed(each.place for each in addresses)}")
    for each in dead:
        saw = f"{case.prefix}BOOTSTRAP_SERVERS: {each.place}: {each.problem}"
        fix = "fix the address, the DNS or the network, or remove the address"
        yield fail(saw, fix) if len(dead) == len(addresses) else warn(saw, fix)


@check(
    "brokers",
    "whether brokers answer there: encryption, login, metadata",
    "FAIL: a port that is open, and no answer. WARN: no controller.",
    needs="addresses",
    now=True,
)
def _brokers(case: Case) -> Iterator[CheckResult]:
    kafka = case.kafka
    if all(each.problem for each in kafka.bootstrap):
        yield unknown("no bootstrap address can be reached")
    elif not kafka.listeners:
        yield fail(
            f"a bootstrap address can be reached, but no broker answers there: {kafka.problem}",
            f"check {case.prefix}SECURITY__PROTOCOL, the login, and that it is a port for clients",
        )
    elif kafka.problem is None and kafka.controller < 0:
        yield warn("the cluster has no controller", "check the controllers of the cluster")
    else:
        yield ok(f"{len(kafka.listeners)} brokers: {listed(kafka.listeners)}")


@check(
    "listeners",
    "every address that a broker advertises: name service and TCP",
    "FAIL: one cannot be reached from here, or accepts connections and does not answer.",
    needs="addresses",
    now=True,
)
def _listeners(case: Case) -> Iterator[CheckResult]:
    listeners = case.kafka.listeners
    if not listeners:
        yield unknown("no broker returned its address")
        return
    sound = True
    for number, each in listeners.items():
        silent = _silence(case, number)
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


def _silence(case: Case, broker: int) -> str:
    """Return why questions to one broker stayed without an answer; empty where they did not."""
    for what in ("settings", "offsets"):
        why = case.kafka.untold.get(f"{what} of broker {broker}", "")
        if why.startswith(SILENCE):
            return why
    return ""


@check(
    "broker-versions",
    "the requests that the brokers support",
    "FAIL: no transactions with fenced offsets (KIP-447, from 2.5), or no KIP-848 where "
    "`HAPAX_GROUP__PROTOCOL` asks for it.",
)
def _versions(case: Case) -> Iterator[CheckResult]:
    apis = case.kafka.apis
    if not apis:
        yield unknown("the client did not report which requests the brokers support")
        return
    sound = True
    writes = case.settings.mode.transactional and case.side != "input"
    if writes and apis.get("TxnOffsetCommit", -1) < KIP_447:
        sound = False
        yield fail(
            "a broker is older than 2.5: offsets in transactions are not fenced (KIP-447)",
            "upgrade the brokers to 2.5 or later",
        )
    joins = case.settings.group.protocol == "consumer" and case.side != "outputs"
    if joins and apis.get(CONSUMER_PROTOCOL, -1) < KIP_848:
        sound = False
        yield fail(
            "HAPAX_GROUP__PROTOCOL=consumer, but a broker does not serve that protocol (KIP-848)",
            "set HAPAX_GROUP__PROTOCOL=classic, or upgrade the brokers to 4.0 or later",
        )
    if sound:
        recent = "4.0 or later" if apis.get("EndTxn", -1) >= KIP_890 else "2.5 or later"
        yield ok(f"the requests that the brokers support are those of Kafka {recent}")
