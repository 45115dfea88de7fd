"""Records that may kill their process, within a task of Spark: the worker's rule, range by range.

The Python process of a task dies with its record, and Spark calls the task lost; the driver lives
and plans the same range again. What the worker keeps for as long as it has a partition lives with
the lane on the driver, and travels with plans and reports:

trusted  a range of this partition was done since it was shared out, and no task was lost since: its
         records are neither marked nor suspected
marks    that stand beside offsets although their writer has reported

The mark beside the committed offset says the same to a worker, or another driver: see
core/suspicion.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from hapax.engines.suspects import Suspects

if TYPE_CHECKING:
    from hapax.core.isolation import Isolation
    from hapax.core.ports import Core, Source
    from hapax.core.records import TopicPartition
    from hapax.engines.spark.plan import RangePlan, RangeReport
    from hapax.telemetry.events import Events


class TaskSuspects(Suspects):
    """The suspects of one task: begins with what the lane knows, reports what it learns."""

    def __init__(
        self,
        source: Source,
        core: Core,
        isolation: Isolation,
        plan: RangePlan,
        report: RangeReport,
        *,
        records_max: int,
    ) -> None:
        events = cast("Events", _Told(report))  # the only event of suspects
        super().__init__(source, core, isolation, events, records_max=records_max)
        # While brokers refuse what a batch holds, the question is another one; and the commit of a
        # mark would end the reports that say which message it is.
        self._trusted |= plan.trusted if plan.attempt == 1 else plan.starts.keys()
        self._ours |= plan.marks
        self._plan = plan
        self._report = report

    def finish(self) -> None:
        """Clear the marks at the end of a range; what is not suspected is trusted from here on."""
        self.leave()
        known = self._trusted if self._plan.attempt == 1 else set(self._plan.trusted)
        proven = known | self._probation.keys()
        self._report.trusted = sorted(proven - self._isolation.suspects.keys())

    def report_marks(self) -> None:
        """Report the marks that stand; call whatever the range ended in."""
        own = {where: one.mark for where, one in self._probation.items() if one.mark is not None}
        self._report.marks = {**self._ours, **own}

    def fail(self) -> None:
        """Take note that a transaction failed: the marks that stood before it may still do so."""
        self.report_marks()
        super().fail()


class _Told:
    """Keeps what a range finds out: the driver logs it."""

    def __init__(self, report: RangeReport) -> None:
        self._report = report

    def records_isolated(self, where: TopicPartition, first: int, until: int, deaths: int) -> None:
        """Keep that processes died at ``first``."""
        self._report.suspected.append((where, first, until, deaths))
