"""The tables of docs/world: made of the record, between two marks that name them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.world import events, measuring, programs, rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.world.programs import Client

PAGES = rounds.RECORD.parent
_MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def write() -> None:
    """Bring all pages up to the record."""
    for page in sorted(PAGES.glob("*.md")):
        page.write_text(filled(page), encoding="utf-8")


def filled(page: Path) -> str:
    """Return the page with its tables as the record has them."""
    return _MARKED.sub(
        lambda found: found[1] + TABLES[found[2]]() + found[4], page.read_text("utf-8")
    )


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _played(answers: str) -> list[tuple[Client, dict[str, str]]]:
    rows = rounds.record()["rows"]
    return [
        (client, rows[client.name])
        for client in programs.clients()
        if answers in client.answers and client.name in rows
    ]


def _name(client: Client) -> str:
    version = rounds.record()["versions"][client.name]
    return f"{client.name} {version} ({client.language})"


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|") or "not played"


_RIGHT = {
    "aborted": "20 committed",
    "several": "30 committed",
    "interleaved": "25 committed",
    "open": "10 committed",
    "split": "900 committed",
    "long": "3 committed",
    "codecs": "50 committed",
    "fields": "as written",
    "compacted": "5 committed, 5 tombstones",
    "hapax": "20000 committed",
}
"""What a reader with ``read_committed`` is to deliver of each topic."""


def readers() -> str:
    """One row a client: what it delivers by default and with read_committed, and what to set."""
    head = ("client", "what to set", "by default", *_RIGHT)
    return _table(
        head,
        [
            (
                _name(client),
                _cell(client.words.get("option")),
                _cell(answers.get("aborted, default")),
                *(
                    "right"
                    if answers.get(f"{shape}, read_committed") == right
                    else _cell(answers.get(f"{shape}, read_committed"))
                    for shape, right in _RIGHT.items()
                ),
            )
            for client, answers in _played("readers")
        ],
    )


def lag() -> str:
    """One row a client: end minus its group's offset, at rest."""
    shapes = ("aborted", "tail", "only", "open")
    return _table(
        ("client", *shapes, "what to do"),
        [
            (
                _name(client),
                *(
                    _cell(answers.get(f"{shape}, lag at rest", "").split(", ")[0])
                    for shape in shapes
                ),
                client.words.get("lag", ""),
            )
            for client, answers in _played("lag")
        ],
    )


def tools() -> str:
    """One row a tool: the lag that it shows of groups with nothing left to read."""
    groups = ("hapax", *measuring.AFTER_LAST, "no offset")
    return _table(
        ("tool", *groups, "what to do"),
        [
            (
                _name(client),
                *(_cell(answers.get(f"{group}, measured")) for group in groups),
                client.words.get("measures", ""),
            )
            for client, answers in _played("tools")
        ],
    )


def writers() -> str:
    """One row a client and variant: keys, what stands on the wire, times."""
    rows = []
    for client, answers in _played("writers"):
        for question in answers:
            if question.startswith("keys"):
                variant = question.removeprefix("keys").strip(", ")
                rows.append(
                    (
                        _name(client),
                        variant or "defaults",
                        _cell(answers[question]),
                        _cell(answers.get(question.replace("keys", "wire"))),
                        _cell(answers.get("times")) if not variant else "",
                        client.words.get("writes", "") if not variant else "",
                    )
                )
    head = ("client", "settings", "keys", "on the wire", "times in ms", "what to do")
    return _table(head, rows)


def groups() -> str:
    """One row a client: a group that goes to Hapax and back."""
    parts = ("group, before Hapax", "group, Hapax", "group, taken back")
    return _table(
        ("client", "its 150", "then 100 by Hapax", "then its 50"),
        [
            (_name(client), *(_cell(answers.get(part)) for part in parts))
            for client, answers in _played("lag")
        ],
    )


def serdes() -> str:
    """One row a serde, what it wrote and in which form."""
    rows = [
        (_name(client), *question.split(", "), *_parts(answer.replace(" for ``", " more"), 4))
        for client, answers in _played("serdes")
        for question, answer in answers.items()
    ]
    head = ("serde", "what", "form", "how it names the schema", "by Hapax", "against", "back")
    return _table(head, rows)


def sent_events() -> str:
    """One row a form of an SDK, and a form of recorded change data."""
    rows = [
        (_name(client), question.removeprefix("event, "), *_parts(answer, 3))
        for client, answers in _played("events")
        for question, answer in answers.items()
    ]
    rows += [
        ("Debezium 3.6.1 (recorded)", form, *_parts(answer, 3))
        for form, answer in events.changes().items()
    ]
    return _table(("from", "form", "content type", "other headers", "id"), rows)


def _parts(answer: str, count: int) -> list[str]:
    return (answer.split(" | ") + [""] * count)[:count]


TABLES: dict[str, Callable[[], str]] = {
    "readers": readers,
    "lag": lag,
    "groups": groups,
    "tools": tools,
    "writers": writers,
    "registries": serdes,
    "events": sent_events,
}
