from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.native import Stage


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    """A mock cluster with a native and a plain reader."""
    pytest.importorskip("hapax_fast")
    from tests.kit.native import Stage  # noqa: PLC0415 - only where the native path is installed

    made = Stage()
    yield made
    made.close()
