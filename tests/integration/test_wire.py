"""Requests that are made without the client, on every way into a cluster that asks who it is."""

import pytest

from hapax.core.rights import Right
from hapax.kafka.admin.requests import RecordSet, producers, set_at, wire_properties
from hapax.kafka.admin.wire import WireError
from hapax.kafka.read.offsets_client import BlockingOffsets
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.secured import INSTANCE, WAYS, login, settings_of, way


@pytest.mark.parametrize("name", WAYS)
def test_a_record_sets_header_and_producers_are_had_on_every_way_but_tokens(
    guarded, tmp_path, name
):
    chosen = way(guarded, name)
    route = PipelineUnderTest(guarded, tmp_path, **chosen.settings)
    route.create()
    route.write(b"1", b"2")
    where = (route.source, 0)
    if chosen.user is not None:
        guarded.rights.allow(chosen.user, Right("TOPIC", route.source, "READ", "is read"))
    settings = settings_of(route)
    client = BlockingOffsets(settings)
    leader = client.leaders()[where]
    client.close()
    properties = wire_properties(settings)
    if name in {"tokens", "token file"}:
        with pytest.raises(WireError, match="only with PLAIN or SCRAM, not OAUTHBEARER"):
            set_at(properties, leader, where, 0)
        return
    found = set_at(properties, leader, where, 0)
    assert isinstance(found, RecordSet)
    assert found.first == 0
    assert set_at(properties, leader, where, 2) is None
    assert producers(properties, leader, [where]) == []


def test_a_wrong_password_is_told_without_it(guarded, tmp_path):
    chosen = way(guarded, "SCRAM-SHA-256")
    user = str(chosen.user)
    wrong = login(guarded, "SCRAM-SHA-256", USERNAME=user, PASSWORD="not-the-password")  # noqa: S106 - it is wrong
    route = PipelineUnderTest(guarded, tmp_path, **chosen.settings)
    route.create()
    client = BlockingOffsets(settings_of(route))
    leader = next(iter(client.leaders().values()))
    client.close()
    with pytest.raises(WireError, match="refuses the configured user or password") as caught:
        set_at(wire_properties(settings_of(route, **wrong)), leader, (route.source, 0), 0)
    assert "not-the-password" not in str(caught.value)
    assert INSTANCE not in str(caught.value)
