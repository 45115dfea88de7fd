"""Work that is done: what came of a route's records, and small questions to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hapax.core.records import Record
    from tests.kit.managed_process import WorkerProcess
    from tests.kit.pipeline_under_test import PipelineUnderTest


class Done(NamedTuple):
    """A route whose input has had its effects, and the worker that made them."""

    route: PipelineUnderTest
    worker: WorkerProcess

    def outputs_of(self, offset: int) -> list[Record]:
        return [each for each in self.route.outputs() if source(each) == offset]

    def sum(self, fact: str) -> int:
        return sum(int(str(line[fact])) for line in self.worker.lines("transaction_committed"))


def source(record: Record) -> int:
    return int(header(record, "hapax-source").rsplit("/", 1)[1])


def header(record: Record, name: str) -> str:
    return (dict(record.headers)[name] or b"").decode()


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]
