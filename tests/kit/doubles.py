"""Stand-ins for time, telemetry and chance."""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from hapax.core.interrupt import KilledError
from hapax.telemetry.events import Events
from hapax.testing.source import InjectedFault


class StuckError(AssertionError):
    """The worker went round and round without an end."""


class CrashError(KilledError):
    """The process ends here; nothing of it goes on."""


def crashing_at(step: str) -> Callable[[str], None]:
    """Return what ends the process at this step of a Script."""

    def crash(reached: str) -> None:
        if reached == step:
            raise CrashError

    return crash


class Ticking:
    """A clock on which every look costs a microsecond, and waiting costs no time of ours."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        self.now_s += 1e-6
        return self.now_s

    def wait(self, seconds: float) -> None:
        self.now_s += seconds


class Told:
    """Records events; refuses any that the real Events does not know, or not so."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.on: dict[str, Callable[[], None]] = {}

    def __getattr__(self, name: str) -> Callable[..., None]:
        signature = _signature(name)

        def tell(*values: object, **named: object) -> None:
            bound = signature.bind(self, *values, **named)
            self.events.append((name, {k: v for k, v in bound.arguments.items() if k != "self"}))
            self.on.get(name, lambda: None)()

        return tell

    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    def of(self, name: str) -> list[dict[str, Any]]:
        return [facts for each, facts in self.events if each == name]


class Script:
    """Faults by step, in order: ``None`` lets one pass. ``then`` is called for each step."""

    def __init__(self, **faults: list[InjectedFault | None]) -> None:
        self.faults = {step: list(each) for step, each in faults.items()}
        self.steps: list[str] = []
        self.then: Callable[[str], None] = lambda _step: None

    def __call__(self, step: str) -> InjectedFault | None:
        self.steps.append(step)
        self.then(step)
        waiting = self.faults.get(step)
        return waiting.pop(0) if waiting else None

    def once(self, when: Callable[[str], object], act: Callable[[], object]) -> None:
        """Act at the first step of which ``when`` says so."""

        def then(step: str) -> None:
            if when(step):
                self.then = lambda _step: None
                act()

        self.then = then

    def at(self, step: str, number: int, act: Callable[[], object]) -> None:
        """Act when a step is reached for the time of this number."""
        self.once(lambda reached: reached == step and self.steps.count(step) == number, act)

    @property
    def unplayed(self) -> dict[str, list[InjectedFault | None]]:
        return {step: left for step, left in self.faults.items() if left}


@cache
def _signature(event: str) -> inspect.Signature:
    return inspect.signature(getattr(Events, event))
