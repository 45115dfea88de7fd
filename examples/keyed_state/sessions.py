"""Visits of each user: one ends half an hour after its last click, by the time of the clicks.

The key is the user. The output is the click with the number of its visit.
"""

from hapax import Output, Record, State

IDLE = "30m"


def transform(record: Record, state: State[int]) -> Output:
    visit = state.get("visit")
    if visit is None:  # there was none, or it has expired
        visit = state.get("visits", 0) + 1
        state.set("visits", visit)
    state.set("visit", visit, ttl=IDLE)
    return Output(record.value, headers=(("visit", b"%d" % visit),))
