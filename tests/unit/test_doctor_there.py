"""A pipeline between two clusters: each is asked what it has, and each finding names its own."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from hapax.core.cluster_state import ClusterState, Partition, ReaderAtRest, Topic
from hapax.operations.doctor.check import CheckContext, Verdict
from hapax.operations.doctor.examination import CHECKS
from tests.kit.doctor import (
    KAFKA_THERE,
    healthy_there,
    judged,
    topic,
    troubles,
    with_broker,
    with_kafka,
    with_topic,
)

Change = Callable[[CheckContext], CheckContext]

WARN, FAIL = Verdict.WARN, Verdict.FAIL
HERE, THERE = "kafka-0:9092,kafka-1:9092", "there-0:9092"
PLAIN = {"HAPAX_OUTPUT__KAFKA__SECURITY__PROTOCOL": "plaintext"}
UNVERIFIED = {"HAPAX_OUTPUT__KAFKA__PROPERTIES": '{"enable.ssl.certificate.verification":"false"}'}


def source(there: CheckContext) -> CheckContext:
    assert there.source is not None
    return there.source


def test_every_check_judges_the_cluster_that_it_speaks_of_and_finds_nothing():
    there = healthy_there()
    here = source(there)
    found = {True: judged(here), False: judged(there)}
    assert troubles([*found[True], *found[False]]) == {}
    untold = [one for both in found.values() for one in both if one.verdict is Verdict.UNTOLD]
    assert untold == []
    where = {side: {(one.check, one.cluster) for one in each} for side, each in found.items()}
    assert {name for name, _ in where[True] | where[False]} == {check.name for check in CHECKS}
    assert {cluster for _, cluster in where[True]} == {"", HERE}
    assert {cluster for _, cluster in where[False]} == {THERE}


def test_topics_of_the_outputs_are_looked_for_where_the_outputs_go_and_nowhere_else():
    there = healthy_there()
    said = {one.cluster: set[str]() for one in [*judged(there), *judged(source(there))]}
    for one in [*judged(there), *judged(source(there))]:
        if one.check in {"topics", "durability"}:
            said[one.cluster].add(one.saw.partition(":")[0])
    assert said[THERE] == {"out", "dead"}
    assert said[HERE] == {"in"}


FAULTS: list[tuple[str, Verdict, Change]] = [
    ("topics", FAIL, with_kafka(topics={**KAFKA_THERE.topics, "out": Topic("UNKNOWN_TOPIC")})),
    ("durability", FAIL, with_topic("out", *[Partition(1, (1,), (1,))] * 2)),
    ("unclean-election", FAIL, with_topic("dead", unclean__leader__election__enable="true")),
    ("compaction", FAIL, with_topic("dead", cleanup__policy="compact")),
    ("dead-letter-retention", WARN, with_topic("dead", retention__ms="1000")),
    ("message-size", WARN, with_topic("out", max__message__bytes="1000")),
    ("output-timestamps", WARN, with_topic("out", message__timestamp__before__max__ms="1")),
    ("readers", WARN, with_kafka(readers=(ReaderAtRest("billing", "out", 0, 9, 10),))),
    ("partition-counts", WARN, with_topic("out", Partition(1, (1, 2, 3), (1, 2, 3)))),
    ("offsets-retention", FAIL, with_broker(offsets__retention__minutes="60")),
    ("transaction-timeout", FAIL, with_broker(transaction__max__timeout__ms="9999")),
    ("transactional-id-expiry", WARN, with_broker(transactional__id__expiration__ms="60000")),
    ("broker-versions", FAIL, with_kafka(apis={"TxnOffsetCommit": 2})),
    ("rights", FAIL, with_kafka(ids={"shop/from/doctor": "AUTHORIZATION_FAILED: no"})),
    (
        "rights",
        FAIL,
        with_kafka(
            topics={**KAFKA_THERE.topics, "out": replace(topic(), operations=("WRITE",))},
        ),
    ),
    (
        "rights",
        FAIL,
        with_kafka(group=None, untold={"consumer group": "GROUP_AUTHORIZATION_FAILED: no"}),
    ),
    ("kafka-plaintext", WARN, lambda _: healthy_there(**PLAIN)),
    ("kafka-verification", WARN, lambda _: healthy_there(**UNVERIFIED)),
]


@pytest.mark.parametrize(
    ("check", "verdict", "change"),
    [pytest.param(*one, id=f"{number}-{one[0]}") for number, one in enumerate(FAULTS)],
)
def test_a_fault_of_the_cluster_of_the_outputs_is_named_with_it(check, verdict, change):
    there = change(healthy_there())
    found = judged(there)
    assert troubles(found) == {check: verdict}
    assert {one.cluster for one in found} == {THERE}
    assert troubles(judged(source(there))) == {}


@pytest.mark.parametrize(
    "change",
    [
        with_broker(transaction__max__timeout__ms="9999"),
        with_broker(transactional__id__expiration__ms="60000"),
        with_kafka(apis={"TxnOffsetCommit": 2}),
    ],
)
def test_nothing_of_transactions_is_asked_of_the_cluster_that_is_only_read(change):
    assert troubles(judged(change(source(healthy_there())))) == {}


def test_an_input_and_an_output_of_one_name_are_judged_as_what_they_are():
    environ = {"HAPAX_INPUT__TOPICS": "both", "HAPAX_OUTPUT__TOPIC": "both"}
    there = with_topic("both", cleanup__policy="compact")(healthy_there(**environ))
    here = with_topic("both", cleanup__policy="compact")(source(there))
    assert "compaction" in troubles(judged(here))
    assert "compaction" not in troubles(judged(there))


def test_offsets_that_expire_soon_cost_something_else_on_each_cluster():
    short = with_broker(offsets__retention__minutes="60")
    there = short(healthy_there())
    (lost,) = [one for one in judged(there) if one.check == "offsets-retention"]
    assert "loses its progress" in lost.saw
    (unseen,) = [one for one in judged(short(source(there))) if one.check == "offsets-retention"]
    assert "does not see that the progress on the cluster of the outputs is lost" in unseen.saw


def test_a_cluster_of_the_outputs_without_an_answer_is_one_failure_with_its_own_setting():
    gone = ClusterState(
        bootstrap=(replace(KAFKA_THERE.bootstrap[0], problem="connection refused"),),
        problem="none of the bootstrap addresses can be reached",
    )
    found = judged(healthy_there()._replace(kafka=gone))
    assert troubles(found) == {"bootstrap": FAIL}
    (said,) = [one.saw for one in found if one.verdict is FAIL]
    assert said == "HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS: there-0:9092: connection refused"
