"""Mechanical mutations of a module: every one that its syntax tree allows, by exact position.

Left out is what no test could notice, or none should: annotations, docstrings, ``__repr__``,
assertions, the texts of errors, what only narrates, and keywords that only guard (``strict=True``).
"""

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
COMPARE: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Lt: (r"<", ("<=", ">=")),
    ast.LtE: (r"<=", ("<", ">")),
    ast.Gt: (r">", (">=", "<=")),
    ast.GtE: (r">=", (">", "<")),
    ast.Eq: (r"==", ("!=",)),
    ast.NotEq: (r"!=", ("==",)),
    ast.Is: (r"\bis\b", ("is not",)),
    ast.IsNot: (r"\bis\s+not\b", ("is",)),
    ast.In: (r"\bin\b", ("not in",)),
    ast.NotIn: (r"\bnot\s+in\b", ("in",)),
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: (r"-", "+"),
    ast.Mult: (r"\*", "//"),
    ast.FloorDiv: (r"//", "*"),
}
NARRATES = re.compile(r"^(?:self\.)?_?(?:events|log|logger|client_log)\.")
GUARDS = {"strict", "daemon", "kw_only", "repr", "stacklevel"}
SILENT = {"__repr__", "__str__", "__slots__"}


class Mutation(NamedTuple):
    """One change: of ``file``, by its path from the root, bytes ``begin`` to ``end``."""

    id: str
    file: str
    line: int
    kind: str
    begin: int
    end: int
    before: str
    after: str

    def apply(self, source: bytes) -> bytes:
        """Return the module with this one change, and all that follows on its old lines."""
        lines = self.before.count("\n") - self.after.count("\n")
        return source[: self.begin] + (self.after + "\n" * lines).encode() + source[self.end :]


class _Edit(NamedTuple):
    kind: str
    line: int
    begin: int
    end: int
    after: str


def mutations(file: Path) -> list[Mutation]:
    """Return all that a module allows, in the order of their places."""
    source, name = file.read_bytes(), file.relative_to(ROOT).as_posix()
    seen: Counter[tuple[str, ...]] = Counter()
    found = []
    for scope, edit in sorted(_Edits(source).all, key=lambda one: one[1][2:]):
        before = source[edit.begin : edit.end].decode()
        # Lines move, so a mutation is known by what it is in: the n-th of its kind in a function.
        known = (name, scope, edit.kind, before, edit.after)
        seen[known] += 1
        digest = hashlib.sha256(repr((*known, seen[known])).encode()).hexdigest()[:8]
        found.append(
            Mutation(digest, name, edit.line, edit.kind, edit.begin, edit.end, before, edit.after)
        )
    return found


def is_valid(source: bytes) -> bool:
    """Whether it can be imported at all: an edit of text may have broken the layout."""
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


class _Edits:
    """Walks a module once; ``all`` are pairs of the enclosing function and an edit."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._starts = [0]
        for line in source.split(b"\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)
        self.all: list[tuple[str, _Edit]] = []
        self._walk(ast.parse(source), "")

    def _walk(self, node: ast.AST, scope: str) -> None:
        if isinstance(node, ast.Assert) or _narrates(node) or _only_for_types(node):
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if node.name in SILENT or _is_protocol(node):
                return
            scope = f"{scope}.{node.name}"
            parts: list[ast.AST] = list(node.body)
            if not isinstance(node, ast.ClassDef):
                parts += [*node.args.defaults, *filter(None, node.args.kw_defaults)]
        elif isinstance(node, ast.AnnAssign):
            parts = [part for part in (node.target, node.value) if part is not None]
        elif isinstance(node, ast.keyword):
            parts = [] if node.arg in GUARDS else [node.value]
        elif isinstance(node, ast.Raise):
            parts = []
        else:
            parts = list(ast.iter_child_nodes(node))
        for edit in self._edits(node):
            self.all.append((scope, edit))
        for part in parts:
            self._walk(part, scope)

    def _edits(self, node: ast.AST) -> Iterator[_Edit]:
        if isinstance(node, ast.Compare | ast.BoolOp | ast.BinOp | ast.UnaryOp):
            yield from self._operators(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            value = node.value
            if isinstance(value, bool):
                yield self._edit("constant", node, str(not value))
                return
            yield self._edit("constant", node, str(value + 1))
            if value > 0:
                yield self._edit("constant", node, str(value - 1))
        elif isinstance(node, ast.If | ast.IfExp):
            yield self._edit("condition", node.test, "True")
            yield self._edit("condition", node.test, "False")
        elif isinstance(node, ast.comprehension) and node.ifs:
            yield self._edit("condition", node.ifs[0], "True")
        elif isinstance(node, ast.Return):
            if node.value is not None and not _is_none(node.value):
                yield self._edit("return", node, "return None")
        elif isinstance(node, ast.stmt) and _can_be_left_out(node):
            yield self._edit("statement", node, "pass")

    def _operators(self, node: ast.expr) -> Iterator[_Edit]:
        match node:
            case ast.Compare(left=left, ops=[op, *_], comparators=[right, *_]):
                pattern, instead = COMPARE[type(op)]
                for text in instead:
                    yield from self._between("compare", left, right, pattern, text)
            case ast.BoolOp(op=op, values=[left, right, *_]):
                word, other = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                yield from self._between("and-or", left, right, rf"\b{word}\b", other)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
                if not (_is_text(left) or _is_text(right)):
                    pattern, text = ARITHMETIC[type(op)]
                    yield from self._between("arithmetic", left, right, pattern, text)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._edit("not", node, self._text(operand))

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def _span(self, node: ast.AST) -> tuple[int, int]:
        place = node
        assert isinstance(place, ast.expr | ast.stmt)
        assert place.end_lineno is not None
        assert place.end_col_offset is not None
        begin = self._at(place.lineno, place.col_offset)
        return begin, self._at(place.end_lineno, place.end_col_offset)

    def _text(self, node: ast.AST) -> str:
        begin, end = self._span(node)
        return self._source[begin:end].decode()

    def _edit(self, kind: str, node: ast.AST, after: str) -> _Edit:
        begin, end = self._span(node)
        return _Edit(kind, self._source[:begin].count(b"\n") + 1, begin, end, after)

    def _between(
        self, kind: str, left: ast.AST, right: ast.AST, pattern: str, after: str
    ) -> Iterator[_Edit]:
        begin, end = self._span(left)[1], self._span(right)[0]
        match = re.search(pattern.encode(), self._source[begin:end])
        if match:
            at = begin + match.start()
            yield _Edit(kind, self._source[:at].count(b"\n") + 1, at, begin + match.end(), after)


def _narrates(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and NARRATES.match(ast.unparse(node.value.func)) is not None
    )


def _only_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _is_protocol(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and any(
        ast.unparse(base).startswith("Protocol") for base in node.bases
    )


def _is_text(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str | bytes)
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple)


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _can_be_left_out(node: ast.stmt) -> bool:
    """Whether the rest still has its names: a local that is not assigned fails at once."""
    if isinstance(node, ast.Assign):
        return not any(isinstance(target, ast.Name | ast.Tuple) for target in node.targets)
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call | ast.Await | ast.YieldFrom)
    return isinstance(node, ast.AugAssign | ast.Raise | ast.Continue | ast.Break | ast.Delete)
