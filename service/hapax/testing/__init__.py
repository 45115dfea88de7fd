"""Tests without a broker: ``from hapax.testing import Pipeline``.

pipeline             the tests of a transform: records in, what became of them out
pytest_plugin        the same as a fixture, ``hapax_pipeline``

Kafka and the claim store in memory, which it is built on: the same ports as the real ones, given
time, faults on demand. Tests of Hapax and its simulator use them; names there may change.

source, transaction  the ports of Kafka
claims               the ports of the claim store
broker               the Kafka that they use, with its consumer group
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hapax.testing.pipeline import Pipeline, Processed

__all__ = ["Pipeline", "Processed"]


def __getattr__(name: str) -> Any:
    # The plugin of pytest is imported by every run of pytest: it must not load the settings.
    if name in __all__:
        from hapax.testing import pipeline  # noqa: PLC0415 - as said above

        return getattr(pipeline, name)
    raise AttributeError(name)
