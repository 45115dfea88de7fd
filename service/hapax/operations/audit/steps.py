"""One audit on any engine: what is read, in an order that is right while it runs.

1. ends of the inputs     read so far; the transform names the topics of the outputs
2. ends of the outputs    what is visible now ...
3. committed offsets      ... must be below these
4. ends of the outputs    once no transaction begun before 3 is open: all effects of records below
                          the committed offsets are before these
5. ends of the inputs     ids that came meanwhile may own what was dropped as a duplicate
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hapax.operations.audit.result import InputBounds, Scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.core.records import Progress, TopicPartition
    from hapax.operations.audit.result import Audit
    from hapax.operations.audit.tasks import ReadEffects, ReadInputs
    from hapax.operations.audit.topics import AuditTopics

    Report = Callable[[str, int, int], None]
    """Takes what goes on, how much is done, and of how much; 0 of 0: not known."""


class Engine(Protocol):
    """Reads rows and judges them. Raises IncompleteError when not everything could be read.

    ``cores``: how many ranges are worth reading at once.
    """

    cores: int

    def read_inputs(self, task: ReadInputs, what: str) -> None:
        """Read all ranges of the task; may be called again for what came meanwhile."""

    def read_effects(self, task: ReadEffects, what: str) -> None:
        """Read all ranges of the task."""

    def named_topics(self) -> set[str]:
        """Return the topics that the transform chose itself."""

    def first_named(self, lanes: list[int]) -> dict[int, int]:
        """Return by place of input the highest of the first offsets that these lanes name."""

    def judge(self, scope: Scope) -> Audit:
        """Return the result, without remarks."""


def run(engine: Engine, topics: AuditTopics, *, examples_max: int) -> Audit:
    """Read everything, judge it, and return the result."""
    lows, ends = topics.lows(), topics.ends()  # 1
    engine.read_inputs(topics.input_task(lows, ends, engine.cores), "reading input")
    outputs, committed = topics.settled_outputs(engine.named_topics())  # 2 to 4
    later = topics.ends()  # 5
    if any(later[where] > ends[where] for where in topics.places):
        task = topics.input_task(ends, later, engine.cores)
        engine.read_inputs(task, "reading records that arrived meanwhile")
    engine.read_effects(topics.effect_task(lows, outputs, engine.cores), "reading outputs")
    # Effects of one input partition keep their order in an output partition. So where the oldest
    # outputs are gone, everything after the first record that is named there is still complete.
    trimmed = [lane for lane, one in enumerate(outputs) if not topics.complete(one)]
    first = engine.first_named(trimmed) if trimmed else {}
    found = engine.judge(
        Scope(
            app=topics.app,
            inputs=_bounds(topics, lows, ends, committed, first),
            outputs=outputs,
            claimed=topics.claimed,
            known=topics.known,
            compare=topics.compare,
            examples_max=examples_max,
        )
    )
    found.remarks = list(topics.remarks)
    return found


def _bounds(
    topics: AuditTopics,
    lows: Progress,
    ends: Progress,
    committed: dict[TopicPartition, int | None],
    first: dict[int, int],
) -> list[InputBounds]:
    compacted = topics.compacted()
    found = []
    for place, where in enumerate(topics.places):
        known = committed[where]
        start = max(lows[where], first.get(place, -1) + 1)
        if start > lows[where]:
            topics.remarks.append(
                f"{where[0]}/{where[1]}: judged from {start} on: older outputs were deleted"
            )
        found.append(
            InputBounds(
                topic=where[0],
                partition=where[1],
                low=lows[where],
                start=start,
                until=max(start, min(known or 0, ends[where])),
                committed=known,
                end=ends[where],
                compacted=where[0] in compacted,
            )
        )
    return found
