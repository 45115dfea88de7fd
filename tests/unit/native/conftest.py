from collections.abc import Iterator

import pytest

from tests.kit.native import Stage


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    """A mock cluster with a native and a plain reader."""
    pytest.importorskip("hapax_fast")
    from tests.kit.native import Stage  # noqa: PLC0415 - only where the native path is installed

    made = Stage()
    yield made
    made.close()
