"""The fixture ``hapax_pipeline``, which pytest finds wherever Hapax is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.testing.pipeline import Pipeline


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a project name its file of settings."""
    parser.addini(
        "hapax_env_file", "settings of the fixture hapax_pipeline", default="settings.env"
    )


@pytest.fixture
def hapax_pipeline(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Pipeline]:
    """Return a pipeline in memory with the settings and the transform of ``settings.env``.

    The file is in the folder that pytest calls its root; the ini option ``hapax_env_file`` names
    another. Modules of that folder can be imported.
    """
    from hapax.testing.pipeline import Pipeline  # noqa: PLC0415 - only where it is used

    monkeypatch.syspath_prepend(pytestconfig.rootpath)
    with Pipeline(
        settings=pytestconfig.rootpath / pytestconfig.getini("hapax_env_file")
    ) as pipeline:
        yield pipeline
