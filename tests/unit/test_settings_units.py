import pytest
from hypothesis import given
from hypothesis import strategies as st

from hapax.core.durations import duration_ms
from hapax.settings import load_settings
from hapax.settings.value_types import duration_text, size_bytes, size_text
from tests.unit.test_settings import REQUIRED
from tests.unit.test_settings_problems import problems


@given(st.integers(min_value=0, max_value=10**14))
def test_a_duration_that_was_written_is_read_as_the_same_number(value_ms):
    assert duration_ms(duration_text(value_ms)) == value_ms


@given(st.integers(min_value=0, max_value=10**14))
def test_a_size_that_was_written_is_read_as_the_same_number(value_bytes):
    assert size_bytes(size_text(value_bytes)) == value_bytes


@given(st.integers(min_value=0, max_value=10**9), st.integers(min_value=0, max_value=999))
def test_fractions_of_a_second_are_exact(seconds, thousandths):
    assert duration_ms(f"{seconds}.{thousandths:03}s") == seconds * 1000 + thousandths


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_a_plain_refusal(text):
    try:
        assert duration_ms(text) >= 0
    except ValueError as refusal:
        assert "like 250ms" in str(refusal) or "finer" in str(refusal)  # noqa: PT017 - either is right


@given(st.text(max_size=12))
def test_any_text_is_a_size_or_a_plain_refusal(text):
    try:
        assert size_bytes(text) >= 0
    except ValueError as refusal:
        assert "like 16MiB" in str(refusal) or "finer" in str(refusal)  # noqa: PT017 - either is right


@pytest.mark.parametrize(
    ("text", "value_ms"),
    [
        ("250ms", 250),
        ("1.5s", 1_500),
        ("0.3s", 300),
        ("10 s", 10_000),
        ("5m", 300_000),
        ("24h", 86_400_000),
        ("7d", 604_800_000),
    ],
)
def test_readable_durations_are_read(text, value_ms):
    assert duration_ms(text) == value_ms


@pytest.mark.parametrize(
    ("text", "value_bytes"),
    [
        ("16MiB", 16_777_216),
        ("1MB", 1_000_000),
        ("1.5KiB", 1_536),
        ("2 gib", 2_147_483_648),
        ("4096", 4_096),
        ("7B", 7),
    ],
)
def test_readable_sizes_are_read(text, value_bytes):
    assert size_bytes(text) == value_bytes


@pytest.mark.parametrize(
    ("value_ms", "text"),
    [(100, "100ms"), (10_000, "10s"), (60_000, "60s"), (300_000, "5m"), (86_400_000, "24h")],
)
def test_durations_are_written_as_people_write_them(value_ms, text):
    assert duration_text(value_ms) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("100", "the unit is missing: 100ms or 100s?"),
        ("10 parsecs", "parsecs is no unit of time here"),
        ("10S", "S is no unit of time here"),
        ("1.5ms", "finer than a millisecond"),
        ("-5s", "like 250ms"),
        ("1h30m", "like 250ms"),
        ("\u0661s", "like 250ms"),
        ("", "like 250ms"),
    ],
)
def test_a_duration_that_is_none_is_refused_with_a_hint(text, reason):
    with pytest.raises(ValueError, match=r"write a duration|finer") as refusal:
        duration_ms(text)
    assert reason in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("16M", "M is no unit of size here"),
        ("0.5", "finer than a byte"),
        ("-1", "like 16MiB"),
        ("many", "like 16MiB"),
    ],
)
def test_a_size_that_is_none_is_refused_with_a_hint(text, reason):
    with pytest.raises(ValueError, match=r"write a size|finer") as refusal:
        size_bytes(text)
    assert reason in str(refusal.value)


# -- settings pipeline --------------------------------------------------------------------

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
