"""The control of killers.py: in a process that loads this nothing is marked."""

from hapax.engines.suspects import Suspects
from tests.kit.killers import obey

__all__ = ["obey"]

Suspects.mark = lambda *_arguments: None  # type: ignore[method-assign]
