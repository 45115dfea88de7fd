"""Rules that are broken in the same way wherever the service runs: in the simulation, on brokers.

``patch`` sets an attribute: ``setattr`` in a process of its own, ``monkeypatch.setattr`` in this.
"""

from collections.abc import Callable
from functools import partial, wraps
from inspect import Parameter, isfunction, signature
from typing import Any

from hapax.core.record_path import Batch
from hapax.core.records import Progress
from hapax.engines.recovery import Recovery

Patch = Callable[[Any, str, Any], None]
Mutant = Callable[[Patch], None]


def in_place_of(owner: Any, name: str) -> Callable[[Callable[..., Any]], Mutant]:
    """Make the function a mutant: it replaces this attribute, and gets the real one first."""

    def named(broken: Callable[..., Any]) -> Mutant:
        @wraps(broken)
        def plant(patch: Patch) -> None:
            real = getattr(owner, name)

            def by(*values: Any, **how: Any) -> Any:
                return broken(real, *values, **how)

            by.__signature__ = signature(partial(broken, real))  # type: ignore[attr-defined]
            patch(owner, name, by)

        return plant

    return named


def replaced(owner: Any, name: str, by: Any) -> Mutant:
    """Return the mutant that has this in place of that attribute."""
    return lambda patch: patch(owner, name, by)


def require_same_arguments(owner: Any, name: str, by: Any) -> None:
    """Raise TypeError where the real function can be called in a way that ``by`` refuses.

    Its trial would end with a process that crashes, which may pass for the mistake that it plants.
    """
    real = vars(owner).get(name) or getattr(owner, name)
    if not (isfunction(real) and isfunction(by)):
        return
    places = signature(real).parameters.values()
    named = {each.name: each for each in places if each.kind is Parameter.KEYWORD_ONLY}
    by_place = [each for each in places if each.kind is Parameter.POSITIONAL_OR_KEYWORD]
    try:
        signature(by).bind(*by_place, **named)
        signature(by).bind(*(each for each in by_place if each.default is Parameter.empty), **named)
    except TypeError as error:
        raise TypeError(f"{by.__module__} in place of {name}{signature(real)}: {error}") from error


def no_rewind(patch: Patch) -> None:
    """Go on behind a batch that was aborted."""

    def rewind(_self: Recovery, _batch: Batch, *, resolved: bool) -> Progress:
        return {}

    patch(Recovery, "_rewind", rewind)


def progress_by(distance: int, patch: Patch) -> None:
    """Commit offsets that are wrong by so much; 1: behind the next record."""
    right = Batch.progress

    def wrong(batch: Batch, done: int) -> Progress:
        return {where: max(0, at + distance) for where, at in right(batch, done).items()}

    patch(Batch, "progress", wrong)


def no_fence_on_doubt(patch: Patch) -> None:
    """Keep the producer although a request of it may still be on its way; it would refuse."""
    patch(Recovery, "fence_doubt", lambda _self: None)
