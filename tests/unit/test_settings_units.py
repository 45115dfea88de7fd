from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hapax.core.durations import duration_ms
from hapax.settings.value_types import duration_text, size_bytes, size_text


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
