"""One batch at a time through a pipeline in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.kit.pipeline import Pipeline

if TYPE_CHECKING:
    from hapax.core.batch_result import BatchResult
    from hapax.core.ports import Batch


def taken(pipeline: Pipeline) -> Batch:
    return pipeline.source.take(500, 0.0)


def run(pipeline: Pipeline, batch: Batch | None = None) -> BatchResult:
    return pipeline.core.run(batch or taken(pipeline), {}, 1)


def opened(pipeline: Pipeline) -> Pipeline:
    pipeline.transaction.open()
    return pipeline


def filled(**options: Any) -> Pipeline:
    pipeline = Pipeline(2, **options)
    pipeline.write(b"a", b"two", b"a/2", b"boom", b"filter")
    pipeline.write(b"b", partition=1)
    return opened(pipeline)
