"""Outputs on another cluster: a mirror that is exact to the byte, whatever dies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hapax.sandbox import Sandbox
from tests.kit.at_work import QUICK
from tests.kit.managed_process import WorkerProcess
from tests.kit.mirror_frozen import FREEZE_AT
from tests.kit.mirrors import Mirror
from tests.kit.topics import Given, produce_aborted
from tests.kit.waiting import await_

if TYPE_CHECKING:
    from collections.abc import Iterator


class Frozen(WorkerProcess):
    """A worker that may have stopped itself."""

    def stopped(self) -> bool:
        stat = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii")
        return stat.rpartition(")")[2].split()[0] == "T"


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


def zombie(mirror: Mirror, folder: Path, transform: str) -> None:
    """Freeze a worker over a batch until another has done its partitions, then thaw it."""
    mark = folder / "frozen"
    settings = {**QUICK, "TRANSFORM": transform}
    environment = mirror.environment(**settings) | {FREEZE_AT: str(mark)}
    mirror.write(*given(60))
    first = Frozen(environment, "w-0", folder / "w-0.log")
    first.start()
    mirror.workers.append(first)
    await_(lambda: mark.exists() and first.stopped(), 60, first.text)
    mirror.worker("w-1", **settings)
    mirror.await_all(60)
    first.thaw()
    await_(lambda: first.lines("producer_died") or first.lines("transaction_committed"), 60)
    mirror.write(*given(60, 60))
    mirror.await_all(60)


def test_a_worker_that_thaws_over_a_batch_is_fenced_when_another_has_its_partition(
    mirror: Mirror, tmp_path: Path
) -> None:
    zombie(mirror, tmp_path, "tests.kit.mirror_frozen:pass_on")
    assert mirror.anomalies() == []
    assert [line["fenced"] for line in mirror.workers[0].lines("producer_died")] == [True]


def test_control_with_an_id_of_the_process_the_batch_is_doubled(
    mirror: Mirror, tmp_path: Path
) -> None:
    zombie(mirror, tmp_path, "tests.kit.mirror_unfenced:pass_on")
    assert any("doubled" in text for text in mirror.anomalies())
