"""Prose is plain technical English, as one Kafka engineer writes to another.

Each pattern has what to write instead, and why; ``ALLOWED`` are the phrases in which it is right.
"""

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.meta.statements import ROOT
from tests.meta.test_docs import PAGES


class Word(NamedTuple):
    """A pattern that prose does not use, and what stands in its place."""

    pattern: str
    instead: str
    planted: str


WORDS = (
    Word(r"mend(s|ed|ing)?", "fix", "mend the address"),
    Word(r"untold|tells?|told|telling", "report, return, log, know", "the broker tells its id"),
    Word(r"anew|made again|make again", "again, recreated", "join the group anew"),
    Word(r"for ever|forever", "indefinitely, permanently", "it blocks for ever"),
    Word(r"goes on|go on|went on", "continues", "the worker goes on"),
    Word(r"leaves with|left with exit", "exits with code N", "it leaves with 1"),
    Word(r"farewell|lookout", "name the step, the lag monitor", "a farewell that hangs"),
    Word(r"time-outs?|roll-outs?", "timeout, rollout", "a time-out of 6 s"),
    Word(r"we|us|our|ours|ourselves", "name the actor: the service, assigned", "our partitions"),
    Word(
        r"nobody|somebody|everybody|whoever|anybody",
        "name the actor: no member, the operator, another program",
        "nobody reads it",
    ),
    Word(r"stands?|stood", "is, is at, remains", "the offset stands at 7"),
    Word(r"beside|besides", "alongside, in addition to", "a loop beside it"),
    Word(r"looks? at|looks? after", "check, query, read", "look at the log"),
    Word(r"behind", "after, beyond; 'behind' only for lag", "the offset behind a record"),
    Word(r"is (not )?there|are (not )?there", "exists, is missing", "the topic is not there"),
)
ALLOWED = re.compile(
    r"\bstands? for\b|\bstood for\b|\bstand-?by\b|\bstandalone\b|\bfall(s|ing)? behind\b"
)
"""What is right as it is."""


def found(text: str) -> Iterator[str]:
    """Yield one line for each banned word in ``text``: where, and what to write instead."""
    text = ALLOWED.sub(" ", " ".join(text.split()))
    for word in WORDS:
        for match in re.finditer(rf"(?i)(?<![\w.`_-])(?:{word.pattern})(?![\w`_-])", text):
            near = text[max(0, match.start() - 40) : match.end() + 40]
            yield f"'{match[0]}' in '…{near}…': write {word.instead}"


def strings(source: str) -> Iterator[str]:
    """Yield the texts of a module that users may read: literals of three words or more."""
    skipped: set[int] = set()  # docstrings, and parts of another string: met after what holds them
    for node in ast.walk(ast.parse(source)):
        text = ""
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            skipped.update(map(id, node.values))
            parts = (p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)
            text = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = "" if id(node) in skipped else node.value
        if len(text.split()) > 2:
            yield text


CODE = re.compile(r"(?ms)^ *```.*?^ *```|``?[^`\n]+?``?|\]\([^)]*\)")
"""What a page or a docstring quotes: code, names, and the targets of links."""


def prose(text: str) -> str:
    """Return the sentences of a page, or of a docstring, without what they quote."""
    return CODE.sub("…", text)


def explanations(source: str) -> Iterator[str]:
    """Yield the docstrings of a module, those of its attributes too, and then its comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT]
    yield "\n".join(comments)


# Made from code, or by a run of the fault suite: their words are those of their sources.
MADE = {"docs/proof.md", "docs/performance.md"}
# Pages and modules that are not in plain words yet.
NOT_YET = {"tests/fault/README.md"}
HELD_PAGES = [page for page in PAGES if str(page.relative_to(ROOT)) not in MADE | NOT_YET]
HELD_PAGES.append(ROOT / "bench/report/page.md")
MANIFESTS = [
    *(ROOT / name for name in ("Dockerfile", "Makefile", "pyproject.toml")),
    *sorted(file for file in (ROOT / "deploy").rglob("*") if file.suffix in {".yaml", ".env"}),
    ROOT / "deploy/monitoring/dashboard.json",
]
MODULES = sorted((ROOT / "service/hapax").rglob("*.py"))
# Docstrings and comments are held as well but in these folders, where fields of structs have the
# words as names; test_ratchets counts those.
FIELDS = ("kafka", "operations")
EXPLAINED = [
    file for file in MODULES if file.relative_to(ROOT / "service/hapax").parts[0] not in FIELDS
]


def offences(files: Iterable[Path], texts: Callable[[str], Iterator[str]]) -> list[str]:
    """Return a line for each banned word in what ``texts`` yields of each file."""
    return [
        f"{file.relative_to(ROOT)}: {line}"
        for file in files
        for text in texts(file.read_text())
        for line in found(text)
    ]


def test_each_banned_word_is_found():
    for word in WORDS:
        lines = list(found(f"A sentence: {word.planted}, it says."))
        assert any(word.instead in line for line in lines), word


def test_a_banned_word_is_found_in_a_docstring_in_a_comment_and_across_lines():
    source = 'def one():\n    """Start it\n    anew."""\n    # it goes\n    # on\n    return "ours"'
    assert len([line for text in explanations(source) for line in found(text)]) == 2


def test_what_a_page_quotes_and_what_is_right_is_not_found():
    page = "`told` and [a page](behind.md#anew)\n\n```console\nit tells\n```\n"
    assert list(found(prose(page))) == []
    assert list(found("\\x00 stands for NUL; the house; `told`; tell_tale; use it")) == []


def test_messages_use_plain_words():
    assert len(MODULES) > 200
    assert offences(MODULES, strings) == []


def test_pages_and_manifests_use_plain_words():
    assert min(len(HELD_PAGES), len(MANIFESTS)) > 50
    assert offences([*HELD_PAGES, *MANIFESTS], lambda text: iter([prose(text)])) == []


def test_docstrings_and_comments_use_plain_words():
    assert len(EXPLAINED) > 50
    assert offences(EXPLAINED, lambda text: map(prose, explanations(text))) == []
