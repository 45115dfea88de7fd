from __future__ import annotations

import json
import sys
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.testing import Pipeline

sys.path.insert(0, str(Path(__file__).parent))
names = pytest.importorskip("names")


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    """A real server, at an address that no other test uses."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), names.Names)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("NAMES_URL", f"http://127.0.0.1:{server.server_port}")
    yield server
    server.shutdown()
    server.server_close()


def sighting(event: str, species: str) -> bytes:
    return json.dumps({"id": event, "species": species}).encode()


@pytest.mark.usefixtures("service")
def test_a_sighting_leaves_with_its_name(hapax_pipeline: Pipeline) -> None:
    [value] = hapax_pipeline.run(sighting("s-1", "pica-pica")).values()
    assert json.loads(value or b"")["name"] == "magpie"


@pytest.mark.usefixtures("service")
def test_what_has_no_name_is_not_asked_for_again(hapax_pipeline: Pipeline) -> None:
    result = hapax_pipeline.run(sighting("s-1", "no-such-bird"))
    assert [(one.reason, one.attempts) for one in result.dead_letters] == [("Poison", 1)]


def test_without_the_service_a_record_is_tried_three_times(
    hapax_pipeline: Pipeline, service: ThreadingHTTPServer
) -> None:
    service.shutdown()
    service.server_close()
    result = hapax_pipeline.run(sighting("s-1", "corvus-corax"))
    assert [(one.reason, one.attempts) for one in result.dead_letters] == [("URLError", 3)]
