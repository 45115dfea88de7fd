"""Events as SDKs and connectors write them, and whether Hapax finds the id that names them."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from hapax.core.records import Record
from hapax.processing.identity import Identity
from tests.world.programs import ask
from tests.world.rounds import ROOT

if TYPE_CHECKING:
    from tests.world.installed import Command

ATTRIBUTES = {
    "specversion": "1.0",
    "id": "7",
    "source": "/shop",
    "type": "shop.order",
    "datacontenttype": "application/json",
    "subject": "815",
    "time": "2026-11-27T01:10:00+00:00",
}
CLAIM = b"cloudevents\0/shop\x007"
CHANGES = ROOT / "tests" / "kit" / "foreign" / "changes.jsonl"
ROWS = "json:/source/schema+json:/source/table+json:/source/lsn+json:/op+key"
RECORDED = {"rows": ROWS, "outbox": "header:id"}
"""Forms of CHANGES, and the source of the id that docs/change-data-capture.md names."""


def written(command: Command) -> dict[str, str]:
    """Return question → answer: an event in each mode of an SDK."""
    answer = ask(command, "events", {"attributes": ATTRIBUTES, "data": {"order": 815}})
    if answer.failure:
        return {"event": f"error: {answer.failure}"}
    return {f"event, {line['form']}": _event(line) for line in answer.lines}


def _event(line: dict[str, Any]) -> str:
    headers = tuple(
        (name, None if told is None else base64.b64decode(told)) for name, told in line["h"]
    )
    value = base64.b64decode(line["v"])
    told = {name.lower(): text for name, text in headers}
    kind = (told.pop("content-type", None) or b"none").decode()
    names = ", ".join(
        name if text is not None else f"{name} (unset)" for name, text in told.items()
    )
    record = Record("in", 0, 0, None, value, headers)
    found = Identity(["cloudevents"], claimed=True).identify([record]).claims
    return f"{kind} | {names or 'none'} | {'found' if list(found) == [CLAIM] else 'not found'}"


def changes() -> dict[str, str]:
    """Return form → answer: how many of the changes with key and value have an id of their own."""
    lines = [json.loads(line) for line in CHANGES.read_text(encoding="utf-8").splitlines()]
    return {form: _changes(lines, form, source) for form, source in RECORDED.items()}


def _changes(lines: list[dict[str, Any]], form: str, source: str) -> str:
    of_form = [one for one in lines if (one["form"], one["run"]) == (form, 1)]
    given = [one for one in of_form if one["key"] is not None and one["value"] is not None]
    records = [
        Record(
            one["topic"],
            0,
            offset,
            one["key"].encode(),
            one["value"].encode(),
            tuple((name, told.encode()) for name, told in one["headers"]),
        )
        for offset, one in enumerate(given)
    ]
    claims = [one for one in Identity([source], claimed=True).identify(records).claims if one]
    names = ", ".join(name for name, _ in records[0].headers)
    return f"none | {names or 'none'} | {len(set(claims))} of {len(records)} by `{source}`"
