"""A sink whose tasks commit themselves, each once per micro-batch: the control that loses rows.

A task's file appears whole (a rename stands for the commit of its own transaction), and a task
that finds its file there has nothing to do: exactly once, one would think.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType


class NaiveSink(DataSource):
    @classmethod
    def name(cls) -> str:
        return "naive"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802
        return NaiveWriter(self.options["folder"])


class NaiveWriter(DataSourceStreamArrowWriter):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        number = context.getLocalProperty("streaming.sql.batchId")
        done = Path(self.folder) / f"{number}-{context.partitionId()}.done"
        values = [value for batch in iterator for value in batch.column("value").to_pylist()]
        if not done.exists():
            part = done.with_suffix(f".{context.taskAttemptId()}")
            part.write_bytes(b"\n".join(values))
            part.rename(done)
        return WriterCommitMessage()


def committed_values(folder: Path) -> list[bytes]:
    return [value for done in folder.glob("*.done") for value in done.read_bytes().split()]
