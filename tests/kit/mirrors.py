"""A pipeline whose outputs go to another cluster, and the comparison of what is on both."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from hapax.core.headers import ID, PATH, SOURCE
from hapax.core.records import Record
from hapax.sandbox import Sandbox, SandboxTopic
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.topics import Given, read_back
from tests.kit.waiting import await_

STAMPED = {ID, SOURCE, PATH}


class Mirror(PipelineUnderTest):
    """Reads one cluster, writes the other; its topics have one number of partitions."""

    def __init__(
        self,
        sandbox: Sandbox,
        other: Sandbox,
        folder: Path,
        *,
        partitions: int = 1,
        **settings: str | None,
    ) -> None:
        more: dict[str, Any] = {
            "TRANSFORM": None,
            "OUTPUT__KAFKA__BOOTSTRAP_SERVERS": other.bootstrap_servers,
            **settings,
        }
        super().__init__(sandbox, folder, partitions=partitions, **more)
        self.other = other
        self.there = other.bootstrap_servers

    def create(self, **config: Mapping[str, str]) -> None:
        """Create the input here, and outputs and dead letters on the other cluster."""
        self.sandbox.create_topic(self.source, self._partitions, config.get("source"))
        self.other.create_topics(
            SandboxTopic(self.target, self._partitions, config.get("target")),
            SandboxTopic(self.dead_letters, 1, config.get("dead_letters")),
        )

    def outputs(self) -> list[Record]:
        return read_back(self.there, self.target)

    def dead(self) -> list[Record]:
        return read_back(self.there, self.dead_letters)

    def inputs(self) -> list[Record]:
        return read_back(self.bootstrap, self.source)

    def await_all(self, within_s: float = 60.0) -> None:
        wanted = len(self.inputs())
        await_(
            lambda: len(self.outputs()) >= wanted,
            within_s,
            lambda: f"{self._logs()} {self.anomalies()}",
        )

    def anomalies(self) -> list[str]:
        """Return what differs: nothing lost, doubled, out of order or changed by a byte."""
        return differences(self.inputs(), self.outputs())


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


def differences(source: list[Record], target: list[Record]) -> list[str]:
    found = []
    for number in sorted({record.partition for record in [*source, *target]}):
        there = [_content(record) for record in target if record.partition == number]
        here = [
            (str(record.coordinates).encode(), *_content(record)[1:])
            for record in source
            if record.partition == number
        ]
        if here == there:
            continue
        before, after = [one[0] for one in here], [one[0] for one in there]
        lost, doubled = set(before) - set(after), len(after) - len(set(after))
        found.append(
            f"partition {number}: {len(lost)} lost, {doubled} doubled,"
            f" {len(set(after) - set(before))} strange,"
            f" order {'kept' if after == sorted(after, key=before.index) else 'changed'}"
            if set(after) <= set(before)
            else f"partition {number}: {len(lost)} lost, records from elsewhere"
        )
    return found


def _content(record: Record) -> tuple[Any, ...]:
    headers = tuple(pair for pair in record.headers if pair[0] not in STAMPED)
    stamps = dict(pair for pair in record.headers if pair[0] in STAMPED)
    return stamps.get(SOURCE), record.key, record.value, record.timestamp_ms, headers


def an_other_cluster() -> Any:
    """Return a fixture of a file: a second cluster of one broker."""

    @pytest.fixture(scope="module")
    def other() -> Iterator[Sandbox]:
        with Sandbox(redis=False) as made:
            yield made

    return other


def a_mirror(**settings: str) -> Any:
    """Return a fixture: a mirror with three partitions of the sandbox on the fixture ``other``."""

    @pytest.fixture
    def mirror(sandbox: Sandbox, other: Sandbox, tmp_path: Path) -> Iterator[Mirror]:
        made = Mirror(sandbox, other, tmp_path, partitions=3, **settings)
        made.create()
        yield made
        made.close()

    return mirror
