"""Orders and totals in Avro, and what tests of schemas read of a route."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

import fastavro

if TYPE_CHECKING:
    from tests.kit.pipeline_under_test import PipelineUnderTest

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string", "default": ""}],
}
WIDER = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}
TOTAL = {
    "type": "record",
    "name": "Total",
    "fields": [{"name": "id", "type": "long"}, {"name": "total", "type": "long"}],
}


def avro(number: int, schema: dict[str, Any], data: dict[str, Any]) -> bytes:
    out = BytesIO()
    out.write(b"\0" + number.to_bytes(4, "big"))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), data)
    return out.getvalue()


def totals(route: PipelineUnderTest) -> list[int]:
    parsed = fastavro.parse_schema(TOTAL)
    found: list[Any] = [
        fastavro.schemaless_reader(BytesIO((one.value or b"")[5:]), parsed, None)
        for one in route.outputs()
    ]
    return sorted(one["total"] for one in found)
