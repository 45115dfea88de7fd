from __future__ import annotations

import pytest

from hapax.settings import load_settings
from tests.unit.test_settings import REQUIRED
from tests.unit.test_settings_problems import problems

PIPELINE = {
    "HAPAX_ENGINE": "spark",
    "HAPAX_SPARK__DATAFRAME": "shop.revenue:pipeline",
    "HAPAX_SPARK__CHECKPOINT": "/durable/revenue",
}


def test_a_pipeline_needs_the_engine_that_runs_it():
    (problem,) = problems(**PIPELINE | {"HAPAX_ENGINE": "worker"})
    assert "needs HAPAX_ENGINE=spark, which is worker" in problem


def test_a_pipeline_needs_a_checkpoint():
    (problem,) = problems(**PIPELINE | {"HAPAX_SPARK__CHECKPOINT": ""})
    assert "needs HAPAX_SPARK__CHECKPOINT, which is unset" in problem


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("HAPAX_TRANSFORM", "shop.orders:transform", "unset one of them"),
        ("HAPAX_DEDUP__REDIS_URL", "redis://:hunter2@cache:6379/0", "dropDuplicatesWithin"),
        ("HAPAX_DEAD_LETTER__TOPIC", "dead", "give bad rows a topic column"),
        ("HAPAX_STOP_AFTER__RECORDS", "7", "HAPAX_STOP_AFTER__AT_END"),
        ("HAPAX_GUARANTEE", "at_least_once", "its only guarantee is exactly_once"),
    ],
)
def test_what_would_mean_nothing_to_a_pipeline_is_refused_with_what_to_use(name, value, instead):
    (problem,) = problems(**PIPELINE | {name: value})
    assert problem.startswith(f"{name}=")
    assert "does not go with HAPAX_SPARK__DATAFRAME=shop.revenue:pipeline" in problem
    assert instead in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    ("master", "checkpoint", "refused"),
    [
        ("local[4]", "/durable/revenue", False),
        ("spark://spark:7077", "/durable/revenue", True),
        ("spark://spark:7077", "file:///shared/revenue", False),
        ("k8s://https://cluster", "s3a://bucket/revenue", False),
    ],
)
def test_a_cluster_needs_a_checkpoint_that_all_of_it_sees(master, checkpoint, *, refused):
    where = {"HAPAX_SPARK__MASTER": master, "HAPAX_SPARK__CHECKPOINT": checkpoint}
    if refused:
        (problem,) = problems(**PIPELINE | where)
        assert "is a folder of this machine" in problem
    else:
        assert load_settings(REQUIRED | PIPELINE | where).spark.checkpoint == checkpoint


def test_no_app_has_the_name_of_a_markers_group():
    (problem,) = problems(HAPAX_APP="orders--sink")
    assert "choose another name" in problem


def test_a_pipeline_is_no_member_of_a_group_so_its_transaction_may_be_long():
    times = {"HAPAX_TRANSACTION__TIMEOUT": "50s"}
    assert load_settings(REQUIRED | PIPELINE | times).transaction.timeout_ms == 50_000
    (problem,) = problems(**times)
    assert "HAPAX_GROUP__SESSION_TIMEOUT" in problem
