"""What was done to the pipeline while it worked, and what came of it at once."""

from __future__ import annotations

import msgspec


class DemoFault(msgspec.Struct):
    """One fault that really struck.

    kind          kill or freeze; of Spark: driver kill or Python worker kill
    target        the process
    while_doing   what is known to have gone on at that moment
    back_after_s  until the process itself committed again; None for the ordinary loop
    """

    kind: str
    target: str
    while_doing: str
    back_after_s: float | None = None

    @property
    def sentence(self) -> str:
        """One line of the report."""
        back = "" if self.back_after_s is None else f"; commits again after {self.back_after_s} s"
        return f"{self.kind}: {self.target}, {self.while_doing}{back}"


class HandOver(msgspec.Struct):
    """One engine left, and the other one continued under the same name.

    left_after_s     from SIGTERM until the predecessor was gone, drained
    commits_after_s  from SIGTERM until the first commit of the successor
    published        records that came in meanwhile
    exit_code        of the predecessor
    """

    predecessor: str
    successor: str
    left_after_s: float
    commits_after_s: float
    published: int
    exit_code: int

    @property
    def sentence(self) -> str:
        """One line of the report."""
        return (
            f"hand-over: {self.predecessor} left {self.left_after_s} s after SIGTERM, "
            f"{self.successor} commits after {self.commits_after_s} s; "
            f"{self.published:,} records came in meanwhile"
        )


class Damage(msgspec.Struct):
    """Everything that was done, in its order."""

    faults: list[DemoFault] = []
    hand_overs: list[HandOver] = []
