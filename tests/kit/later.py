"""Business code that asks for later tries, and what the retry topic says of each record."""

import json
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from hapax import Output, Record, RetryLater
from hapax.core.headers import Retried
from tests.kit.managed_process import WorkerProcess


def patient(record: Record) -> Output:
    """Ask for ``after`` seconds while the time is before ``until``; without one, always."""
    wish = json.loads(record.value or b"{}")
    if not wish["until"] or time.time() < wish["until"]:
        raise RetryLater(after=wish["after"])
    return Output(json.dumps({"n": wish["n"], "at": time.time()}).encode())


def waits(records: Iterable[Record]) -> dict[str, list[tuple[Record, Retried]]]:
    """Return by original what waited for it, by the number of the move."""
    found: dict[str, list[tuple[Record, Retried]]] = defaultdict(list)
    for record in records:
        retried = Retried.decode(dict(record.headers))
        assert retried is not None, record
        found[retried.of].append((record, retried))
    return {of: sorted(each, key=lambda one: one[1].move) for of, each in found.items()}


def assigned(worker: WorkerProcess) -> set[str]:
    held: set[str] = set()
    for line in worker.lines():
        places: Any = line.get("partitions")
        if line["event"] == "partitions_assigned":
            held |= set(places)
        elif line["event"] in {"partitions_revoked", "partitions_lost"}:
            held -= set(places)
    return held
