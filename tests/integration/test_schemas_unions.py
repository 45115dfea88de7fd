"""Two event types in one topic, as a union of Avro, through a worker and a registry."""

from __future__ import annotations

import json

from tests.kit.pipeline_under_test import PipelineUnderTest, values
from tests.kit.schema_registry import RegistryDouble

EVENTS = [
    {"type": "record", "name": f"shop.{name}", "fields": [{"name": "id", "type": "string"}]}
    for name in ("Created", "Deleted")
]


def test_a_deleted_leaves_as_deleted_and_garbage_is_a_dead_letter(sandbox, tmp_path):
    with RegistryDouble() as registry:
        route = PipelineUnderTest(
            sandbox,
            tmp_path,
            INPUT__FORMAT="avro",
            OUTPUT__FORMAT="avro",
            REGISTRY__URL=registry.url,
        )
        route.create()
        number = registry.add(f"{route.target}-value", json.dumps(EVENTS))
        head = b"\0" + number.to_bytes(4, "big")
        events = [head + b"\0\2a", head + b"\2\2a", head + b"\2\2b"]
        route.write(*events, head + b"\4\2a")
        route.run_to_end()
        assert values(route.outputs()) == events
        assert len(route.dead()) == 1
        route.close()
