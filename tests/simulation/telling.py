"""Telemetry of a simulated process: counted by name, and told where somebody reads along."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.telemetry.events import Events

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.process import Process
    from tests.simulation.world import World

TOLD = frozenset(name for name in dir(Events) if not name.startswith("_"))


class Telling:
    """Takes every event that the real Events knows."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def loop_moved(self) -> None:
        """Nothing to tell."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in TOLD:
            raise AttributeError(name)
        world, process = self._world, self._process

        def tell(*values: object, **_named: object) -> None:
            world.count(name)
            if world.trace is not None:
                first = "" if not values else f": {str(values[0])[:100]}"
                world.tell(f"{process.name} {name}{first}")

        setattr(self, name, tell)
        return tell
