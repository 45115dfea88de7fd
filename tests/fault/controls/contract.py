"""What a control is told by its environment, and what it must write for each record.

The names are those that the service reads. Standard library only: peers import this, too.
"""

import json
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.fault import rules
from tests.fault.controls import gate

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000}


class Contract(NamedTuple):
    """From where to where, and under which name."""

    bootstrap: str
    app: str
    instance: str
    source: str
    target: str
    dead: str
    redis_url: str
    session_ms: int
    properties: dict[str, str]

    @property
    def name(self) -> str:
        """The same after a restart, and of no other process."""
        return f"{self.app}-{self.instance}"


class Effect(NamedTuple):
    """One record to write."""

    topic: str
    value: bytes
    headers: list[tuple[str, bytes | None]]


def contract() -> Contract:
    given = os.environ
    return Contract(
        bootstrap=given["HAPAX_KAFKA__BOOTSTRAP_SERVERS"],
        app=given["HAPAX_APP"],
        instance=given.get("HAPAX_INSTANCE", "0"),
        source=given["HAPAX_INPUT__TOPICS"],
        target=given["HAPAX_OUTPUT__TOPIC"],
        dead=given["HAPAX_DEAD_LETTER__TOPIC"],
        redis_url=given.get("HAPAX_DEDUP__REDIS_URL", ""),
        session_ms=_milliseconds(given.get("HAPAX_GROUP__SESSION_TIMEOUT", "6s")),
        properties=json.loads(given.get("HAPAX_KAFKA__PROPERTIES", "{}")),
    )


def effects(
    ours: Contract, coordinates: tuple[str, int, int], value: bytes | None, headers: Iterable[Any]
) -> list[Effect]:
    """Return what must come of a record: outputs, nothing, or one dead letter.

    ``coordinates``: topic, partition and offset of the record.
    """
    gate.pass_through(value or b"")
    source = "{}/{}/{}".format(*coordinates).encode()
    given = [(name, text.encode() if isinstance(text, str) else text) for name, text in headers]
    event = dict(given).get("message-id") or source
    stamp = [*given, ("hapax-id", event), ("hapax-source", source)]
    try:
        made = rules.results(value or b"")
    except rules.PoisonError as error:
        marks = [("hapax-error", f"PoisonError: {error}".encode()), ("hapax-attempts", b"1")]
        return [Effect(ours.dead, value or b"", [*stamp, *marks])]
    topics = {rules.MAIN: ours.target, rules.SECOND: rules.second_topic(ours.source)}
    return [
        Effect(topics[way], output, [*stamp, *_part(number, len(made))])
        for number, (way, output) in enumerate(made, 1)
    ]


def _part(number: int, count: int) -> list[tuple[str, bytes | None]]:
    return [("hapax-part", b"%d/%d" % (number, count))] if count > 1 else []


def _milliseconds(text: str) -> int:
    number = text.rstrip("ms")
    return int(float(number) * _UNITS_MS[text[len(number) :]])
