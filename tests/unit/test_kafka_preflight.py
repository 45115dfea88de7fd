"""What is asked of the brokers before the first record is read."""

from __future__ import annotations

from typing import Any

import pytest

from hapax.core.cluster_state import Address
from hapax.kafka.admin import preflight
from hapax.kafka.admin.preflight import KafkaPreflight
from hapax.settings import load_settings
from tests.unit.test_settings import REQUIRED


class Metadata:
    """A cluster that answers, and has no topic."""

    cluster_id = "here"

    def __init__(self) -> None:
        self.topics: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("protocol", "apis", "refused"),
    [
        ("consumer", {"ConsumerGroupHeartbeat": 1}, False),
        ("consumer", {"ConsumerGroupHeartbeat": 0}, True),
        ("consumer", {"Fetch": 16}, True),
        ("consumer", {}, False),
        ("classic", {"Fetch": 16}, False),
    ],
)
def test_brokers_that_do_not_serve_the_group_protocol_are_refused_by_name(
    monkeypatch, protocol, apis, *, refused
):
    """Its members would get no partition and no error. What is not known is not refused."""
    monkeypatch.setattr(preflight, "request_versions", lambda _settings: apis)
    monkeypatch.setattr(preflight, "bootstrap", lambda _servers: {"a:1": Address("a:1")})
    membership = {"HAPAX_GROUP__PROTOCOL": protocol, "HAPAX_GROUP__MEMBERSHIP": "dynamic"}
    looked = KafkaPreflight(load_settings(REQUIRED | membership), lambda _s: Metadata()).look()
    told = "set HAPAX_GROUP__PROTOCOL=classic, or upgrade the brokers"
    assert [each.endswith(told) for each in looked.refusals] == ([True] if refused else [])
