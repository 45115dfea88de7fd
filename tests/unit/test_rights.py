from collections.abc import Iterable

import pytest

from hapax.cluster.cluster_state import Right
from hapax.operations.doctor.acls import cluster_rights, kafka_rights, store_rights
from hapax.settings import load_settings
from tests.unit.test_settings import REQUIRED

BASE = REQUIRED | {
    "HAPAX_APP": "shop",
    "HAPAX_INSTANCE": "shop-0",
    "HAPAX_INPUT__TOPICS": "orders,returns",
    "HAPAX_OUTPUT__TOPIC": "clean",
}
SPARK = {"HAPAX_ENGINE": "spark"}
SINK = SPARK | {
    "HAPAX_SPARK__DATAFRAME": "shop.orders:pipeline",
    "HAPAX_SPARK__CHECKPOINT": "/data/checkpoint",
}


def granted(rights: Iterable[Right]) -> set[tuple[str, str, str, str]]:
    return {
        (right.resource, right.name, right.operation, right.pattern)
        for right in rights
        if not right.optional
    }


READS = {("TOPIC", "orders", "READ", "LITERAL"), ("TOPIC", "returns", "READ", "LITERAL")}
WRITES = {("TOPIC", "clean", "WRITE", "LITERAL")}
GROUP = {("GROUP", "shop", "READ", "LITERAL")}
OWN = {("TRANSACTIONAL_ID", "shop:shop-0", "WRITE", "LITERAL")}
WORKER = READS | WRITES | GROUP | OWN
SUNK = (
    READS
    | WRITES
    | {
        ("GROUP", "shop--sink", "READ", "LITERAL"),
        ("TOPIC", "clean", "READ", "LITERAL"),
        ("TRANSACTIONAL_ID", "shop/sink", "WRITE", "LITERAL"),
    }
)
OWN_RETRIES = {("TOPIC", "shop-retry", right, "LITERAL") for right in ("READ", "WRITE")}
EVERY_INSTANCE = {("TRANSACTIONAL_ID", "shop:", "WRITE", "PREFIXED")}
LANES = {("TRANSACTIONAL_ID", "shop:shop-0/", "WRITE", "PREFIXED")}
SINK_LANES = {
    ("GROUP", "shop--sink/", "READ", "PREFIXED"),
    ("TRANSACTIONAL_ID", "shop/sink/", "WRITE", "PREFIXED"),
}


@pytest.mark.parametrize(
    ("environ", "rights"),
    [
        pytest.param({}, WORKER, id="a worker: inputs, output, group, transactional id"),
        pytest.param(
            {"HAPAX_DEAD_LETTER__TOPIC": "dead"},
            WORKER | {("TOPIC", "dead", "WRITE", "LITERAL")},
            id="dead letters: to write them",
        ),
        pytest.param({"HAPAX_RETRY__LATER": "OSError"}, WORKER | OWN_RETRIES, id="later tries"),
        pytest.param(
            {"HAPAX_GROUP__MEMBERSHIP": "dynamic"},
            READS | WRITES | GROUP | EVERY_INSTANCE,
            id="names that change with every start: their prefix",
        ),
        pytest.param(SPARK, WORKER | LANES, id="Spark on records: the lanes beside the worker's"),
        pytest.param(SINK, SUNK, id="a DataFrame: the group of its marker and no other"),
        pytest.param(
            SINK | {"HAPAX_SPARK__PUBLISH": "parallel"}, SUNK | SINK_LANES, id="in parts: its lanes"
        ),
        pytest.param(
            {"HAPAX_GUARANTEE": "at_least_once"}, READS | WRITES | GROUP, id="no transactions"
        ),
    ],
)
def test_what_must_be_granted_is_what_the_settings_use_and_no_more(environ, rights):
    assert granted(kafka_rights(load_settings(BASE | environ))) == rights


@pytest.mark.parametrize("elsewhere", [False, True])
def test_groups_whose_lag_is_a_metric_are_described_on_the_cluster_of_the_outputs(elsewhere):
    there = {"HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS": "there:9092"} if elsewhere else {}
    readers = {"HAPAX_TELEMETRY__READERS": "ledger,search"}
    clusters = cluster_rights(load_settings(BASE | readers | there))
    described = [
        [one.name for one in each.rights if one.operation == "DESCRIBE" and one.resource == "GROUP"]
        for each in clusters
    ]
    assert described == [[]] * elsewhere + [["ledger", "search"]]


def test_between_two_clusters_each_has_rights_of_its_own_and_no_instance_is_named():
    environ = {
        "HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS": "there:9092",
        "HAPAX_OUTPUT__TOPIC": "orders",
        "HAPAX_DEAD_LETTER__TOPIC": "dead",
    }
    here, there = cluster_rights(load_settings(BASE | environ))
    assert (here.servers, there.servers) == (BASE["HAPAX_KAFKA__BOOTSTRAP_SERVERS"], "there:9092")
    assert granted(here.rights) == READS | GROUP
    assert granted(there.rights) == {
        ("TOPIC", "orders", "WRITE", "LITERAL"),
        ("TOPIC", "orders", "READ", "LITERAL"),
        ("TOPIC", "dead", "WRITE", "LITERAL"),
        ("GROUP", "shop--from/", "READ", "PREFIXED"),
        ("TRANSACTIONAL_ID", "shop/from/", "WRITE", "PREFIXED"),
    }
    for rights in (here.rights, there.rights):
        assert [right.optional for right in rights] == sorted(right.optional for right in rights)
        assert "shop-0" not in str(rights)
    assert {one.name for one in here.rights if one.resource == "TOPIC"} == {"orders", "returns"}


def test_topics_that_the_business_code_names_are_written_too():
    rights = kafka_rights(load_settings(BASE), outputs=["large", "clean"])
    written = [right.name for right in rights if right.operation == "WRITE" and not right.optional]
    assert written == ["clean", "large", "shop:shop-0"]


def test_every_optional_right_comes_after_the_mandatory_ones_and_says_what_it_is_for():
    rights = kafka_rights(load_settings(BASE))
    assert [right.optional for right in rights] == sorted(right.optional for right in rights)
    assert all(right.reason for right in rights)
    assert len({(right.resource, right.name, right.operation) for right in rights}) == len(rights)


@pytest.mark.parametrize(
    ("url", "user", "select"),
    [
        ("redis://cache:6379/0", "shop", False),
        ("rediss://claims:s3cret@cache/2", "claims", True),
        ("rediss://claims%2Dshop:s3cret@cache", "claims-shop", False),
        ("redis://cache/?username=claims&password=s3cret&db=3", "claims", True),
        ("unix://claims:s3cret@/run/redis.sock", "claims", False),
        ("redis+sentinel://claims:s3cret@a,b/mymaster", "claims", False),
        ("redis+sentinel://claims:s3cret@a,b/mymaster/3", "claims", True),
        ("redis+cluster://claims:s3cret@a,b", "claims", False),
    ],
)
def test_the_line_for_redis_names_user_keys_and_commands_and_no_password(url, user, *, select):
    assert store_rights(load_settings(BASE)) is None
    rights = store_rights(load_settings(BASE | {"HAPAX_DEDUP__REDIS_URL": url}))
    assert rights is not None
    where, line = rights
    assert where == "Redis, a line of its ACL file"
    assert line.startswith(f"user {user} reset on >PASSWORD ~hapax:{{shop}}:claims* +")
    assert line.endswith(" +select") is select
    assert "s3cret" not in line
