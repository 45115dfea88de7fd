"""Objects against the schemas of Kubernetes, strictly; of operators against operators.yaml."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import kubernetes_validate  # type: ignore[import-untyped] # it has none
import yaml

# The oldest that knows every field, and the newest there is.
VERSIONS: Final = ("1.27", "1.37")
Table = Any
_METADATA: Final[Table] = {"name": "text", "namespace": "text", "labels": {"*": "text"}}
OPERATORS: Final[dict[str, Table]] = yaml.safe_load(
    Path(__file__).with_name("operators.yaml").read_text()
)


def problems(each: dict[str, Any], version: str = VERSIONS[-1]) -> list[str]:
    key = f"{each['apiVersion']} {each['kind']}"
    if key not in OPERATORS:
        return _by_kubernetes(each, version, key)
    table = {"apiVersion": "text", "kind": "text", "metadata": _METADATA, "spec": OPERATORS[key]}
    return list(_by_table(each, table, version, key))


def _by_kubernetes(each: dict[str, Any], version: str, where: str) -> list[str]:
    try:
        kubernetes_validate.validate(each, version, strict=True)
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        return [f"{where}: {error.message}"]
    return []


def _by_table(value: object, table: Table, version: str, where: str) -> Iterator[str]:
    match table:
        case None:
            if not isinstance(value, int):
                yield f"{where}: {value!r} is no number"
        case "text":
            if not isinstance(value, str):
                yield f"{where}: {value!r} is no text"
        case "pod":
            pod = {"apiVersion": "v1", "kind": "PodTemplate", "template": value}
            yield from _by_kubernetes(pod, version, where)
        case list():
            for number, inner in enumerate(value if isinstance(value, list) else [value]):
                yield from _by_table(inner, table[0], version, f"{where}[{number}]")
        case _:
            for name, inner in value.items() if isinstance(value, dict) else ():
                if name in table or "*" in table:
                    below = table.get(name, table.get("*"))
                    yield from _by_table(inner, below, version, f"{where}.{name}")
                else:
                    yield f"{where}: {name} does not exist"
