"""Header names are spelled in one module: a reader and a writer cannot differ."""

import ast
import re
from pathlib import Path

from hapax.core import headers

SERVICE = Path(__file__).parents[2] / "service" / "hapax"
NAMES = {
    value
    for name, value in vars(headers).items()
    if name.isupper() and isinstance(value, str) and value not in {headers.PREFIX, headers.RETRY}
} | {
    *(headers.PREFIX + field for field in headers.Failed.__struct_fields__),
    *(headers.RETRY + field for field in headers.Retried.__struct_fields__),
}
SPELLED = re.compile("|".join(rf"\b{name}\b(?!-)" for name in sorted(NAMES)))


def spelled(source: str) -> list[tuple[int, str]]:
    """Return line and name of headers in strings; documentation may name them."""
    if not SPELLED.search(source):
        return []
    tree = ast.parse(source)
    said = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        (node.lineno, found[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in said
        and (found := SPELLED.search(node.value))
    ]


def test_no_module_but_one_spells_the_name_of_a_header():
    assert len(NAMES) >= 11
    found = {
        str(path.relative_to(SERVICE)): names
        for path in sorted(SERVICE.rglob("*.py"))
        if path != SERVICE / "core" / "headers.py" and (names := spelled(path.read_text()))
    }
    assert found == {}


def test_a_name_in_a_call_or_a_comparison_is_found():
    source = '"""hapax-id"""\nheaders.get("hapax-id")\nif name == "header:hapax-app": pass\n'
    assert spelled(source) == [(2, "hapax-id"), (3, "hapax-app")]
