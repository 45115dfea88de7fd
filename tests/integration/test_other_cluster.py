"""Outputs on another cluster: a mirror that is exact to the byte, whatever dies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hapax.sandbox import Sandbox
from tests.kit.mirrors import Mirror
from tests.kit.topics import Given, produce_aborted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def other() -> Iterator[Sandbox]:
    """The cluster of the outputs."""
    with Sandbox(redis=False) as made:
        yield made


@pytest.fixture
def mirror(sandbox: Sandbox, other: Sandbox, tmp_path: Path) -> Iterator[Mirror]:
    made = Mirror(sandbox, other, tmp_path, partitions=3)
    made.create()
    yield made
    made.close()


def given(count: int, first: int = 0) -> list[Given]:
    """Records of all forms over three partitions."""
    return [
        Given(
            None if number % 11 == 0 else b"v%d" % number + bytes([number % 256]) * (number % 40),
            None if number % 5 == 0 else b"k%d" % (number % 17),
            (("a", b"%d" % number), ("a", None), ("b", b"\xff\x00")) if number % 3 else (),
            number % 3,
            1_700_000_000_000 + number,
        )
        for number in range(first, first + count)
    ]


def test_a_mirror_has_every_record_once_in_order_and_equal_to_the_byte(mirror: Mirror) -> None:
    mirror.write(*given(300))
    produce_aborted(mirror.bootstrap, mirror.source, *given(30, 300))
    mirror.write(*given(300, 330))
    mirror.run_to_end(60)
    assert mirror.anomalies() == []
    assert len(mirror.outputs()) == 600
    mirror.write(*given(60, 700))
    mirror.run_to_end(60)
    assert mirror.anomalies() == []
    assert len(mirror.outputs()) == 660
