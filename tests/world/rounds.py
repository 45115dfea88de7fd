"""What was played: rows of a run that was cut, and the record of whole runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "docs" / "world" / "run.json"
"""The last whole run: what each client did, with its version, the broker's, date and commit."""
PROGRESS = ROOT / "build" / "world" / "progress.json"

Rows = dict[str, dict[str, str]]
"""Client → question → answer."""


class Change(NamedTuple):
    """A row that is not as it was recorded. None: there was or is no such row."""

    client: str
    question: str
    was: str | None
    answer: str | None
    versions: tuple[str, str]

    def __str__(self) -> str:
        old, new = self.versions
        version = old if old == new else f"{old}, now {new}"
        return f"{self.client} ({version}): {self.question}: was {self.was}, is {self.answer}"


def record() -> dict[str, Any]:
    """Return the record; empty parts where nothing was recorded yet."""
    if not RECORD.is_file():
        return {"run": {}, "versions": {}, "rows": {}, "missing": {}}
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def changes(rows: Rows, versions: dict[str, str]) -> list[Change]:
    """Return what differs from the record, of the clients that were played."""
    old = record()
    found = []
    for client, answers in rows.items():
        was = old["rows"].get(client, {})
        both = (old["versions"].get(client, "new"), versions[client])
        found += [
            Change(client, question, was.get(question), answers.get(question), both)
            for question in {**was, **answers}
            if was.get(question) != answers.get(question)
        ]
    return found


def keep(
    run: dict[str, str], rows: Rows, versions: dict[str, str], missing: dict[str, str]
) -> None:
    """Write the record; clients that were not played stay as they were."""
    old = record()
    names = sorted({*old["rows"], *rows, *missing})
    new = {
        "run": run,
        "versions": {name: versions.get(name) or old["versions"].get(name) for name in names},
        "rows": {name: rows.get(name) or old["rows"].get(name, {}) for name in names},
        "missing": missing,
    }
    _write(RECORD, new)


def progress(kafka: str) -> tuple[Rows, dict[str, str]]:
    """Return the rows of a run beside this broker that was cut, and the clients it missed."""
    if PROGRESS.is_file():
        found = json.loads(PROGRESS.read_text(encoding="utf-8"))
        if found["kafka"] == kafka:
            return found["rows"], found["missing"]
    return {}, {}


def keep_progress(kafka: str, rows: Rows, missing: dict[str, str]) -> None:
    """Write what a run that is cut now need not play again."""
    _write(PROGRESS, {"kafka": kafka, "rows": rows, "missing": missing})


def forget_progress() -> None:
    """A whole run has ended."""
    PROGRESS.unlink(missing_ok=True)


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")
