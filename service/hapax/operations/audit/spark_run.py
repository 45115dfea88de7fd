"""The Spark engine of an audit: tasks read ranges, DataFrames judge. For large topics."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import HapaxError
from hapax.engines.spark.reports import cause
from hapax.engines.spark.session import SparkOptions, open_session
from hapax.engines.spark.shipping import code_of, named, ship
from hapax.operations.audit.result import IncompleteError
from hapax.operations.audit.spark import AuditJudgement, Tables
from hapax.operations.audit.spark_frames import EFFECTS, INPUTS, read_frame, reporting
from hapax.operations.audit.spark_result import (
    check_complete,
    first_named,
    named_topics,
    result,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from hapax.operations.audit.result import Audit, Scope
    from hapax.operations.audit.steps import Report
    from hapax.operations.audit.tasks import ReadEffects, ReadInputs
    from hapax.settings import Settings

SHUFFLE_OFFSETS, SHUFFLE_MIN = 250_000, 2
CAUSE_CHARS_MAX = 300
_SHUFFLES = "spark.sql.shuffle.partitions"


@contextmanager
def opened(settings: Settings, report: Report) -> Iterator[SparkAudit]:
    """Start Spark for the block, and stop it."""
    report("starting Spark", 0, 0)
    options = msgspec.structs.replace(SparkOptions.of(settings), app=f"{settings.app}-audit")
    wares = [] if options.local else [*code_of(settings.transform), *named(options.ship)]
    spark = open_session(options)
    try:
        with tempfile.TemporaryDirectory(prefix="hapax-ship-") as folder:
            ship(spark.sparkContext, wares, Path(folder))
            yield SparkAudit(spark, report)
    except HapaxError:
        raise
    except Exception as error:  # a task that failed comes in many disguises, none of them short
        why = cause(error)[:CAUSE_CHARS_MAX]
        raise IncompleteError(f"Spark did not finish: {why}") from error
    finally:
        spark.stop()


class SparkAudit:
    """Reads and judges on a session that is open; see hapax.operations.audit.steps.Engine."""

    def __init__(self, spark: SparkSession, report: Report) -> None:
        self._spark = spark
        self._report = report
        self._inputs: list[DataFrame] = []
        self._effects: list[DataFrame] = []
        self.cores = spark.sparkContext.defaultParallelism

    def read_inputs(self, task: ReadInputs, what: str) -> None:
        """Read all ranges of the task."""
        self._inputs.append(self._read(task, INPUTS, what))

    def read_effects(self, task: ReadEffects, what: str) -> None:
        """Read all ranges of the task."""
        self._effects.append(self._read(task, EFFECTS, what))

    def named_topics(self) -> set[str]:
        """Return the topics that the transform chose itself."""
        return {name for frame in self._inputs for name in named_topics(frame)}

    def first_named(self, lanes: list[int]) -> dict[int, int]:
        """Return by place of input the highest of the first offsets that these lanes name."""
        return first_named(self._effects[0], lanes)

    def judge(self, scope: Scope) -> Audit:
        """Judge what was read, and forget it."""
        inputs = self._inputs[0]
        for frame in self._inputs[1:]:
            inputs = inputs.unionByName(frame)
        tables = Tables(inputs, self._effects[0], scope)
        _size_shuffles(self._spark, scope)
        with reporting(self._spark, "judging", self._report):
            found = result(AuditJudgement(self._spark, tables), tables)
        for frame in (*self._inputs, *self._effects):
            frame.unpersist()
        return found

    def _read(self, task: ReadInputs | ReadEffects, columns: str, what: str) -> DataFrame:
        ranges = len(task.stretches)
        frame = read_frame(self._spark, task, ranges, columns)
        with reporting(self._spark, what, self._report):
            check_complete(frame, ranges)
        return frame


def _size_shuffles(spark: SparkSession, scope: Scope) -> None:
    """Choose the number of shuffle partitions by what was read: a small audit is quick."""
    offsets = sum(one.end - one.low for one in scope.inputs)
    offsets += sum(one.end - one.low for one in scope.outputs)
    cores = spark.sparkContext.defaultParallelism
    wanted = max(SHUFFLE_MIN, cores, offsets // SHUFFLE_OFFSETS)
    spark.conf.set(_SHUFFLES, str(min(wanted, 10_000)))
