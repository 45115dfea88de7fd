"""Anomalies of what the live reader saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.fault.checking.checker_histories import LANES
from tests.fault.watching.live import SEEN

if TYPE_CHECKING:
    from tests.fault.checking.checker_histories import World
    from tests.fault.checking.reading_columns import Table


def precommitted_read(world: World) -> bool:
    def see(seen: Table) -> Table:
        lane = int(seen["lane"][-1])
        more = np.array([(int(seen["offset"].max()) + 9, 1, lane)], SEEN)
        return np.concatenate([seen, more])

    world.edits.append(see)
    return bool(world.effects())


def inconsistent_offsets(world: World) -> bool:
    at = world.rng.randrange(len(world.effects()))

    def change(seen: Table) -> Table:
        seen["hash"][at] ^= 1
        return seen

    world.edits.append(change)
    return True


def poll_skip(world: World) -> bool:
    lanes = [at for at, lane in enumerate(LANES) if len(world.lanes[lane]) > 1]

    def skip(seen: Table) -> Table:
        return np.delete(seen, int(np.flatnonzero(seen["lane"] == lanes[0])[0]))

    world.edits.append(skip)
    return bool(lanes)


def nonmonotonic_poll(world: World) -> bool:
    at = world.rng.randrange(len(world.effects()))
    world.edits.append(lambda seen: np.concatenate([seen, seen[at : at + 1]]))
    return True
