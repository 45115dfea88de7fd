"""Settings of a publisher: of a pipeline it needs the app and the way to Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.settings import Settings

_REST = {"HAPAX_INPUT__TOPICS": "_", "HAPAX_OUTPUT__TOPIC": "__"}
"""What a pipeline needs and a publisher has no use for."""


def publish_settings(environ: Mapping[str, str]) -> Settings:
    """Return the settings; raise ConfigurationError with one sentence for each problem."""
    return load_settings(_REST | dict(environ))
