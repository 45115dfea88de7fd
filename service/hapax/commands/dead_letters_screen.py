"""How a dead letter looks: as a row, whole, and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hapax.commands.screen import json_bytes, printable
from hapax.commands.times import moment_text
from hapax.core.headers import Failed

if TYPE_CHECKING:
    from hapax.core.dead_letters import DeadLetter

COLUMNS = ("dead letter", "time", "id", "error", "attempts", "source", "replayed")
_FAILED = [field for field in Failed.__struct_fields__ if field != "truncated"]
_VALUE_SHOWN, _ERROR_SHOWN = 20_000, 80


def row(one: DeadLetter, replayed: bool) -> tuple[str, ...]:
    """Return the cells of ``COLUMNS``."""
    error = one.error if len(one.error) <= _ERROR_SHOWN else f"{one.error[:_ERROR_SHOWN]}…"
    return (
        str(one.record.coordinates),
        moment_text(one.record.timestamp_ms),
        printable(one.event_id),
        error,
        str(one.attempts),
        str(one.source),
        "yes" if replayed else "",
    )


def summary(one: DeadLetter, replayed: bool) -> list[tuple[str, str]]:
    """Return all but headers and content, with a name each."""
    lines = [
        ("dead letter", str(one.record.coordinates)),
        ("source", str(one.source)),
        ("id", printable(one.event_id)),
        *((field, str(getattr(one, field))) for field in _FAILED),
        ("time", moment_text(one.record.timestamp_ms)),
        ("replayed", "yes" if replayed else "no"),
        ("headers", "" if one.readable else "unreadable: a header name is not text"),
    ]
    if one.original != one.source:
        lines.insert(2, ("replay of", str(one.original)))
    return lines


def figures(one: DeadLetter, replayed: bool) -> dict[str, Any]:
    """Return the same as JSON can have it."""
    return {
        "dead_letter": str(one.record.coordinates),
        "source": str(one.source),
        "original": str(one.original),
        "id": json_bytes(one.event_id),
        "reason": one.reason,
        **{field: getattr(one, field) for field in _FAILED},
        "time_ms": one.record.timestamp_ms,
        "replayed": replayed,
    }


def content(one: DeadLetter) -> dict[str, Any]:
    """Return headers, key and value as JSON can have them."""
    return {
        "headers": [[name, json_bytes(value)] for name, value in one.record.headers],
        "key": json_bytes(one.record.key),
        "value": json_bytes(one.record.value),
    }


def shown(value: bytes | None) -> str:
    """Return text as it is but for what a terminal would obey, and other bytes in hex."""
    if value is None:
        return "null"
    more = f" … {len(value):,} bytes in all" if len(value) > _VALUE_SHOWN else ""
    value = value[:_VALUE_SHOWN]
    try:
        text = value.decode("utf-8", "strict" if not more else "ignore")
    except UnicodeDecodeError:
        return f"hex {value.hex()}{more}"
    return "\n".join(printable(line) for line in text.split("\n")) + more
