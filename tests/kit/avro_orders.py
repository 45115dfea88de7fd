"""Orders and totals in Avro, and what tests of schemas read of a route."""

from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro

from hapax.core.records import Record
from hapax.sandbox import Sandbox
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.schema_registry import RegistryDouble

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


def avro_route(sandbox: Sandbox, folder: Path, registry: RegistryDouble) -> PipelineUnderTest:
    route = PipelineUnderTest(
        sandbox,
        folder,
        partitions=2,
        TRANSFORM="tests.kit.priced:price",
        INPUT__FORMAT="avro",
        OUTPUT__FORMAT="avro",
        REGISTRY__URL=registry.url,
        REGISTRY__TIMEOUT="1s",
        REGISTRY__CACHE=str(folder / "schemas"),
    )
    route.create()
    registry.add(f"{route.target}-value", TOTAL)
    return route


def totals(route: PipelineUnderTest) -> list[int]:
    return sorted(map(total, route.outputs()))


def total(output: Record) -> int:
    data: Any = fastavro.schemaless_reader(BytesIO((output.value or b"")[5:]), _TOTAL, None)
    number: int = data["total"]
    return number


_TOTAL = fastavro.parse_schema(TOTAL)
