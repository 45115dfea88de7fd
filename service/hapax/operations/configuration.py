"""What ``hapax config check`` finds beyond the settings themselves, without a connection."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from hapax.core.errors import ConfigurationError
from hapax.engines.overlapping_calls import load_calls
from hapax.kafka.properties import check_client_properties

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.settings import Settings


def check(settings: Settings) -> None:
    """Import the business code and build both clients; raise ConfigurationError with all faults."""
    problems: list[str] = []
    with _collected(problems):
        if settings.spark.dataframe is None:
            load_calls(settings)
        else:
            from hapax.engines.spark.dataframe.query import load_pipeline
            from hapax.engines.spark.session import require_pyspark

            require_pyspark()
            load_pipeline(settings.spark.dataframe)
    with _collected(problems):
        check_client_properties(settings)
    if problems:
        raise ConfigurationError(problems)


@contextmanager
def _collected(problems: list[str]) -> Iterator[None]:
    try:
        yield
    except ConfigurationError as error:
        problems += error.problems
