"""What the service weighs: each ceiling only falls.

A change that needs more than is left takes something away first. Whoever lowers a figure lowers
its ceiling with it; a ceiling rises only where an aim of the project names by how much.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path

from tests.meta.statements import ROOT
from tests.meta.test_words import explanations, found, prose

SERVICE, FIGURES = ROOT / "service", ROOT / "docs" / "performance.md"
LINES_MAX = 56_800
FILES_MAX = 240
CODE_LINES_MAX = 40_010
TEST_LINES_MAX = 83_610
"""Without tests/world, whose programs belong to other clients."""
DOC_WORDS_MAX = 72_167
"""Without docs/world and performance.md, whose tables are made from a record."""
IN_A_CIRCLE_MAX = 0
"""Modules that import each other in a circle, imports for types included."""
HOME_MADE_WORDS_MAX = 7
"""Uses of banned words in docstrings and comments of the service."""


def modules() -> dict[str, Path]:
    return {
        ".".join(file.relative_to(SERVICE).with_suffix("").parts).removesuffix(".__init__"): file
        for file in sorted(SERVICE.rglob("*.py"))
    }


def lines(files: list[Path]) -> int:
    return sum(file.read_bytes().count(b"\n") for file in files)


def code_lines(source: str) -> int:
    """Return the lines that hold a token of code: no comment, no docstring, no blank line."""
    tree = ast.parse(source)
    texts = {
        number
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in texts
        for number, line in enumerate(source.splitlines(), start=1)
    )


@cache
def imports() -> Mapping[str, frozenset[str]]:
    """Return module → the modules of the service that it imports anywhere, for types as well."""
    known = modules()
    return {name: frozenset(_imported(file, known)) for name, file in known.items()}


def _imported(file: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield from (inner,) if inner in known else (node.module,) * (node.module in known)


def circles(graph: Mapping[str, frozenset[str]]) -> list[set[str]]:
    """Return the groups of modules in which each reaches each other one."""
    reached = {name: _reached(name, graph) for name in graph}
    groups = {
        frozenset(other for other in reached[name] if name in reached[other]) for name in graph
    }
    return [set(group) for group in groups if group]


def _reached(name: str, graph: Mapping[str, frozenset[str]]) -> set[str]:
    seen: set[str] = set()
    left = list(graph[name])
    while left:
        module = left.pop()
        if module not in seen:
            seen.add(module)
            left += graph[module]
    return seen


def of_git(pattern: str, *, without: str = "no such folder") -> list[Path]:
    return [
        file
        for file in sorted(ROOT.glob(pattern))
        if not file.is_relative_to(ROOT / without) and "__pycache__" not in file.parts
    ]


def hold(value: int, ceiling: int) -> None:
    """Fail unless a figure keeps its ceiling, and the ceiling is at most 1 % above it."""
    assert value <= ceiling, f"{value}, and at most {ceiling} are left"
    assert value >= ceiling * 99 // 100 - 1, f"{value}: its ceiling of {ceiling} falls with it"


def test_a_circle_is_found_and_a_chain_is_none():
    chain_of_two = {"a": frozenset({"b"}), "b": frozenset[str]()}
    assert circles(chain_of_two) == []
    assert circles(chain_of_two | {"b": frozenset({"a"})}) == [{"a", "b"}]


def test_lines_of_code_are_neither_blank_nor_explained():
    assert code_lines('"""Say.\n\nMore."""\n\n# why\nx = 1  # one\n') == 1


def test_the_service_only_becomes_lighter():
    files = of_git("service/**/*.py")
    code = sum(code_lines(file.read_text()) for file in files)
    hold(lines(files), LINES_MAX)
    hold(len(files), FILES_MAX)
    hold(code, CODE_LINES_MAX)


def test_tests_and_pages_only_become_lighter():
    tests = lines(of_git("tests/**/*.py", without="tests/world"))
    pages = [page for page in of_git("docs/**/*.md", without="docs/world") if page != FIGURES]
    words = sum(len(page.read_text().split()) for page in pages)
    hold(tests, TEST_LINES_MAX)
    hold(words, DOC_WORDS_MAX)


def test_fewer_modules_import_each_other_in_a_circle():
    groups = circles(imports())
    hold(sum(map(len, groups)), IN_A_CIRCLE_MAX)


def test_fewer_docstrings_and_comments_use_words_of_our_own():
    texts = chain.from_iterable(
        map(prose, explanations(file.read_text())) for file in of_git("service/**/*.py")
    )
    uses = Counter(re.sub(r"' in .*", "", line) for text in texts for line in found(text))
    hold(uses.total(), HOME_MADE_WORDS_MAX)
