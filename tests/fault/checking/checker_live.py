"""Whether the live reader saw what stands there at the end, once, and in its order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.fault.checking.checker_findings import Words
from tests.fault.checking.history import found_in, place_keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.fault.checking.checker_findings import Findings
    from tests.fault.checking.history import History


def judge(history: History, findings: Findings) -> None:
    """Find differences between the live reading and the final one."""
    if history.live is None:
        return
    words, lanes = Words(history), history.lanes
    numbers = {(lane.topic, lane.partition): at for at, lane in enumerate(lanes)}
    seen = history.live.seen
    places = np.array([numbers.get(lane, -1) for lane in history.live.lanes], np.int64)
    lane = places[seen["lane"]]
    keys = place_keys(lane, seen["offset"])
    order = np.argsort(lane, kind="stable")

    def live(at: int) -> str:
        one = lanes[lane[at]]
        return f"{one.topic}/{one.partition}/{seen['offset'][at]}"

    again = np.diff(keys[order]) <= 0
    findings.add("nonmonotonic-poll", order[1:][again & (np.diff(lane[order]) == 0)], live)
    final = place_keys(history.effects["lane"], history.effects["at"])
    found = found_in(final, keys)
    findings.add("precommitted-read", np.flatnonzero(found < 0), live)
    other = (found >= 0) & (history.effects["hash"][found] != seen["hash"])
    findings.add("inconsistent-offsets", np.flatnonzero(other), live)
    findings.add("poll-skip", _skipped(history, final, keys, lane), words.effect)


def _skipped(
    history: History,
    final: NDArray[np.int64],
    keys: NDArray[np.int64],
    lane: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the effects before the last one that was seen of their lane, never seen."""
    last = np.full(len(history.lanes), -1, np.int64)
    np.maximum.at(last, lane, keys)
    missed = found_in(np.sort(keys), final) < 0
    return np.flatnonzero(missed & (final < last[history.effects["lane"]]))
