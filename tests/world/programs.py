"""What a client's program is asked and what it answers (README.md)."""

from __future__ import annotations

import base64
import json
import subprocess
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER = Path(__file__).parent
PATIENCE_S = 90.0
"""For one program: a JVM that starts, a group that joins, and the idle time at the end."""


class Client(NamedTuple):
    """A section of clients.toml."""

    name: str
    ecosystem: str
    language: str
    version: str
    packages: tuple[str, ...]
    answers: tuple[str, ...]
    words: dict[str, str]
    """All other texts of the section: what tables say about it."""


class Seen(NamedTuple):
    """A record as the client gave it: bytes, and None where it gave null."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


class Answer(NamedTuple):
    """What came of a program. ``failure``: the last line of its error output, if it failed.

    ``lines`` are all that it printed, as they came.
    """

    records: tuple[Seen, ...] = ()
    refused: tuple[str, ...] = ()
    lags: tuple[int, ...] = ()
    failure: str = ""
    lines: tuple[dict[str, Any], ...] = ()


def clients() -> list[Client]:
    """Return all sections, in the order of the file."""
    sections = tomllib.loads((FOLDER / "clients.toml").read_text(encoding="utf-8"))
    return [_client(name, section) for name, section in sections.items()]


def _client(name: str, section: dict[str, Any]) -> Client:
    known = {"ecosystem", "language", "version", "packages", "answers"}
    return Client(
        name,
        section["ecosystem"],
        section["language"],
        section["version"],
        tuple(section["packages"]),
        tuple(section["answers"]),
        {word: text for word, text in section.items() if word not in known},
    )


def ask(
    command: Iterable[str | Path],
    action: str,
    asked: dict[str, Any],
    given: Iterable[dict[str, Any]] = (),
    *,
    patience_s: float = PATIENCE_S,
) -> Answer:
    """Run a program to its end. One that does not end is killed, and says so in its answer."""
    words = [*map(str, command), action, json.dumps(asked)]
    lines = "".join(json.dumps(one) + "\n" for one in given)
    try:
        done = subprocess.run(
            words, input=lines, capture_output=True, text=True, timeout=patience_s, check=False
        )
    except subprocess.TimeoutExpired:
        return Answer(failure=f"did not end within {patience_s:.0f} s")
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    records = tuple(_seen(line) for line in told if "o" in line)
    refused = tuple(line["refused"] for line in told if "refused" in line)
    lags = tuple(line["lag"] for line in told if "lag" in line)
    last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
    return Answer(records, refused, lags, last if done.returncode else "", tuple(told))


def text(content: bytes | None) -> str | None:
    """Return bytes as programs are given them."""
    return None if content is None else base64.b64encode(content).decode()


def _seen(line: dict[str, Any]) -> Seen:
    return Seen(
        line["p"],
        line["o"],
        _content(line["k"]),
        _content(line["v"]),
        tuple((name, _content(value)) for name, value in line.get("h") or []),
        line.get("t", -1),
    )


def _content(told: str | None) -> bytes | None:
    return None if told is None else base64.b64decode(told)
