"""How the run ended: what is not done, and what is still open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.fault.checking.checker_findings import Words

if TYPE_CHECKING:
    from tests.fault.checking.checker_findings import Findings
    from tests.fault.checking.checker_match import Matched
    from tests.fault.checking.history import History


def judge(history: History, matched: Matched, findings: Findings) -> None:
    """Find lag, offsets beyond the log, partitions that are stuck, open transactions."""
    words = Words(history)
    unseen = ~matched.done & matched.real
    findings.add("unseen", np.flatnonzero(unseen), words.record)
    todo = np.bincount(history.inputs["lane"][~matched.done], minlength=len(history.committed))
    next_offsets = history.next_offsets
    stable = np.array([one.stable for one in history.input_ends], np.int64)
    high = np.array([one.high for one in history.input_ends], np.int64)
    low = np.array([one.low for one in history.input_ends], np.int64)
    behind = (next_offsets < stable) & (todo == 0) & (low < stable)
    findings.add(
        "realtime-lag",
        np.flatnonzero(behind),
        lambda at: f"{history.source}/{at}: committed {next_offsets[at]}, end {stable[at]}",
    )
    findings.add(
        "offset-effect",
        np.flatnonzero(next_offsets > high),
        lambda at: f"{history.source}/{at}: committed {next_offsets[at]}, end {high[at]}",
    )
    lanes = history.lanes
    stuck = [at for at, lane in enumerate(lanes) if lane.ends.stable < lane.ends.high]
    findings.add(
        "stuck-LSO",
        np.array(stuck, np.int64),
        lambda at: (
            f"{lanes[at].topic}/{lanes[at].partition}: last stable offset"
            f" {lanes[at].ends.stable}, high watermark {lanes[at].ends.high}"
        ),
    )
    findings.add("leak", np.arange(len(history.open)), lambda at: history.open[at])
