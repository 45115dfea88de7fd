"""Checks of whether offsets and claims belong to the cluster that answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.operations.doctor.check import Check, fail, good, listed, untold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.operations.doctor.check import Case, Said

ADOPT: Final = (
    "set the addresses to the previous cluster, set a new HAPAX_APP, or run hapax claims adopt"
)


def _offsets(case: Case) -> Iterator[Said]:
    here = case.kafka.cluster_id
    if here is None:
        yield untold("the brokers do not return the id of their cluster")
        return
    beside = {
        place: log.cluster_id
        for name in case.inputs
        for place, log in case.logs(name)
        if log.cluster_id is not None
    }
    foreign = [place for place, cluster in beside.items() if cluster != here]
    if foreign:
        others = listed(sorted({str(beside[place]) for place in foreign}))
        yield fail(
            f"the group's offsets of {listed(foreign)} were committed on cluster {others}, and "
            f"{here} answers: they mean other records, and the service refuses to start",
            ADOPT,
        )
    elif beside:
        yield good(f"the group's offsets were committed on the cluster that answers, {here}")
    else:
        yield good(f"cluster {here} answers; no offset says that it belongs to another")


def _claims(case: Case) -> Iterator[Said]:
    here, store = case.kafka.cluster_id, case.claims
    if store is None or store.cluster_id is None or here is None:
        yield good("no claim says that it belongs to another cluster")
    elif store.cluster_id != here:
        yield fail(
            f"the claims in {store.place} belong to cluster {store.cluster_id}, and {here} "
            "answers: the coordinates in them mean other records, and the service refuses to start",
            ADOPT,
        )
    else:
        yield good(f"the claims belong to the cluster that answers, {here}")


CHECKS: Final = (
    Check(
        "cluster-offsets",
        "Kafka's id of the cluster against the one stored with the group's offsets",
        "FAIL: they were committed on another cluster.",
        "brokers",
        _offsets,
        now=True,
    ),
    Check(
        "claim-cluster",
        "Kafka's id of the cluster against the one stored with the claims",
        "FAIL: they were made for another cluster.",
        "claims",
        _claims,
        now=True,
    ),
)
