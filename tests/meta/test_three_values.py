"""Zero, empty and absent are three values: an optional number or bytes is not tested for truth.

``offset or -1`` made offset 0 the one at which a damaged set stopped its partition in silence.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

SERVICE = Path(__file__).parents[2] / "service/hapax"
KINDS = {"int", "float", "bytes"}
CLIENTS = {"offset", "partition", "leader_epoch", "key", "value"}
"""Methods of the client's messages that return None for what is absent."""
PLACES = {"offset", "partition", "epoch", "timestamp", "timestamp_ms", "committed", "next", "began"}
"""Of these 0 is one of many, so that absent must not become 0; of a count or size it is none."""


def name_of(node: ast.expr) -> str:
    """Return the last word of a name, attribute, walrus or call; of anything else nothing."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=called):
            return name_of(called)
        case ast.NamedExpr(value=value):
            return name_of(value)
    return ""


def optional(annotation: ast.expr | None) -> bool:
    """Whether an annotation is ``int | None``, or the same with float or bytes."""
    parts = set[str]()
    while isinstance(annotation, ast.BinOp):
        parts.add(ast.unparse(annotation.right))
        annotation = annotation.left
    if annotation is not None:
        parts.add(ast.unparse(annotation))
    return "None" in parts and bool(parts & KINDS)


def fields_and_results(trees: dict[str, ast.Module]) -> set[str]:
    """Return the attributes, properties and functions that hold or return such a value."""
    found, others = set(CLIENTS), set[str]()
    for tree in trees.values():
        for node in ast.walk(tree):
            match node:
                case ast.FunctionDef(name=name, returns=annotation):
                    (found if optional(annotation) else others).add(name)
                case ast.AnnAssign(target=target, annotation=annotation):
                    (found if optional(annotation) else others).add(name_of(target))
    return found - (others - CLIENTS)


def truths(nodes: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """Yield every expression whose truth is asked for."""
    for node in nodes:
        match node:
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                yield test
            case ast.Assert(test=test) | ast.UnaryOp(op=ast.Not(), operand=test):
                yield test
            case ast.BoolOp(values=values):
                yield from values[:-1]
            case ast.comprehension(ifs=tests):
                yield from tests
            case ast.Call(func=ast.Name(id="bool"), args=[test]):
                yield test


def defaults(tree: ast.AST) -> Iterator[tuple[ast.expr, object]]:
    """Yield left and right of ``x or 5``, ``x or -1`` and ``x or b""``."""
    for node in ast.walk(tree):
        match node:
            case ast.BoolOp(op=ast.Or(), values=[*_, left, ast.Constant(value=value)]):
                if type(value) in (int, float, bytes):
                    yield left, value
            case ast.BoolOp(op=ast.Or(), values=[*_, left, ast.UnaryOp(op=ast.USub())]):
                yield left, -1


def harmless(node: ast.expr, default: object) -> bool:
    """Whether ``node or default`` leaves zero and empty as they are, and may say it of absent."""
    return default == b"" or (default == 0 and name_of(node) not in PLACES)


def findings(tree: ast.Module, known: set[str], where: str = "") -> list[str]:
    """Return the places in a module that take zero or empty for absent."""
    fine, found = set[int](), dict[int, str]()
    for left, right in defaults(tree):
        if harmless(left, right):
            fine.add(id(left))
        else:
            found[left.lineno] = f"{where}:{left.lineno} {ast.unparse(left)} or …"
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            every = [*function.args.args, *function.args.kwonlyargs]
            local = {one.arg for one in every if optional(one.annotation)}
            nodes = list(ast.walk(function))
            for node in nodes:
                match node:
                    case ast.Assign(targets=[ast.Name(id=name)], value=value):
                        if name_of(value) in known and not isinstance(value, ast.Name):
                            local.add(name)
            for test in truths(nodes):
                names = local if isinstance(test, ast.Name) else known
                if name_of(test) in names and id(test) not in fine:
                    found[test.lineno] = f"{where}:{test.lineno} {ast.unparse(test)}"
    return list(found.values())


def test_no_optional_number_or_bytes_is_tested_for_truth():
    trees = {
        file.relative_to(SERVICE).as_posix(): ast.parse(file.read_text())
        for file in SERVICE.rglob("*.py")
    }
    known = fields_and_results(trees)
    found = [one for name, tree in trees.items() for one in findings(tree, known, name)]
    assert sorted(found) == []


@pytest.mark.parametrize(
    "line",
    [
        "(message.offset() or -1) >= 0",
        "message.offset() or 0",
        "x if record.key else y",
        "not limit_ms",
        "[one for one in found if one.offset()]",
        "(at := message.partition()) and at",
        "timeout_s or 5.0",
    ],
)
def test_the_idiom_is_found(line):
    text = f"def f(limit_ms: int | None, timeout_s: float | None):\n    return {line}\n"
    assert len(findings(ast.parse(text), set(CLIENTS))) == 1


@pytest.mark.parametrize(
    "line", ["len(value or b'')", "x if record.key is None else y", "size or 0", "found or []"]
)
def test_what_keeps_zero_and_empty_is_not(line):
    text = f"def f(value: bytes | None, size: int | None):\n    return {line}\n"
    assert findings(ast.parse(text), CLIENTS) == []
