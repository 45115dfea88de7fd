"""The audit in this process: ranges are read one after the other, sorted on disk, and merged."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from hapax.operations.audit.local_judgement import LocalJudgement
from hapax.operations.audit.local_rows import AuditRows
from hapax.operations.audit.result import IncompleteError, OutputFindings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.operations.audit.local_rows import Row
    from hapax.operations.audit.result import Audit, Scope
    from hapax.operations.audit.steps import Report
    from hapax.operations.audit.tasks import ReadEffects, ReadInputs

_INPUT_COLUMNS, _EFFECT_COLUMNS = 8, 9
_TOPICS, _READ = 8, 9
"""Columns of what tasks yield: topics that an input's outputs name; set at the end of a range."""


class LocalAudit:
    """Reads and judges in this process; see hapax.operations.audit.steps.Engine."""

    cores = 1

    def __init__(self, report: Report) -> None:
        self._report = report
        self._rows = AuditRows()
        self._named: set[str] = set()
        self._outputs: dict[int, list[int]] = {}

    @classmethod
    @contextmanager
    def opened(cls, report: Report) -> Iterator[LocalAudit]:
        """Keep a workspace for the block."""
        audit = cls(report)
        try:
            yield audit
        finally:
            audit._rows.close()

    def read_inputs(self, task: ReadInputs, what: str) -> None:
        """Read all ranges of the task."""
        for rows in self._read(task, what):
            self._named.update(*(row[_TOPICS] for row in rows if row[_TOPICS]))
            kept = [row[:_INPUT_COLUMNS] for row in rows if row[_READ] is None]
            self._rows.add("inputs", kept, _INPUT_COLUMNS)

    def read_effects(self, task: ReadEffects, what: str) -> None:
        """Read all ranges of the task."""
        for rows in self._read(task, what):
            kept = [row[:_EFFECT_COLUMNS] for row in rows if row[_READ] is None]
            self._rows.add("effects", kept, _EFFECT_COLUMNS)
            for row in rows[len(kept) :]:
                known = self._outputs.get(row[0], [0, 0, 0])
                more = zip(row[_READ:], known, strict=True)
                self._outputs[row[0]] = [count + before for count, before in more]

    def _read(self, task: ReadInputs | ReadEffects, what: str) -> Iterator[list[Row]]:
        """Yield rows. Raises IncompleteError unless the last row of each range has ``read`` set."""
        offsets = sum(one.end - one.start for one in task.stretches)
        done = 0
        for number, one in enumerate(task.stretches):
            ended = False
            self._report(what, done, offsets)
            for rows in task(number):
                if rows:
                    ended = rows[-1][_READ] is not None
                    yield rows
                    at = one.end if ended else rows[-1][1]
                    self._report(what, done + at - one.start, offsets)
            if not ended:
                raise IncompleteError(f"{one.topic}/{one.partition} was not read to its end")
            done += one.end - one.start

    def named_topics(self) -> set[str]:
        """Return the topics that the transform chose itself."""
        return self._named

    def first_named(self, lanes: list[int]) -> dict[int, int]:
        """Return by place of input the highest of the first offsets that these lanes name."""
        return self._rows.first_named(lanes)

    def judge(self, scope: Scope) -> Audit:
        """Judge what was read."""
        outputs = []
        for lane, bounds in enumerate(scope.outputs):
            records, foreign, hidden = self._outputs.get(lane, (0, 0, 0))
            outputs.append(
                OutputFindings(bounds=bounds, records=records, foreign=foreign, hidden=hidden)
            )
        return LocalJudgement(self._rows, scope, self._report).result(outputs)
