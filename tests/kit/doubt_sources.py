"""Both sources of doubt on the same transactions: requests as they are counted, and the lines.

A case is one transaction, and whether a request of it may still arrive when it has ended. That is
known from what the case does to the wire, not from either source.
"""

from __future__ import annotations

import functools
import time
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from hapax.core.errors import BatchAbortedError, ProducerDeadError
from hapax.kafka.produce import producer as kafka_producer
from hapax.kafka.produce.doubts import ClientLog
from hapax.kafka.produce.requests import NativeRequests
from hapax.kafka.properties import build
from tests.kit.parts import Parts
from tests.kit.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    import pytest

    from hapax.kafka.produce.doubts import LogLine

CLIENT = "producer-in-doubt"
"""The producer's ``client.id``: the consumer of the same process has another."""
COUNTED = "sent, and "
"""In every doubt that a count of requests gave, and in no line."""


class Verdict(NamedTuple):
    """What each source reports of one transaction that has ended."""

    requests: list[str]
    lines: list[str]


class BothSources(ClientLog):
    """Counts requests, as the service does with the native part, and reads the lines as well."""

    def __init__(self, client: str, forward: LogLine, trial: Trial) -> None:
        super().__init__(client, forward)
        self._verdicts = trial.verdicts
        trial.sources = self
        self._lines = ClientLog(client, lambda *_line: None)

    def log(self, level: int, _form: str, *parts: object) -> None:
        self._lines.log(level, _form, *parts)
        super().log(level, _form, *parts)

    def begin(self) -> None:
        self._lines.begin()
        super().begin()

    def end(self) -> list[str]:
        doubts = super().end()
        counted = [doubt for doubt in doubts if COUNTED in doubt]
        lines = self._lines.end()
        self._verdicts.append(Verdict(counted, lines))
        return doubts + lines


class Trial:
    """One member and one producer, with both sources; transactions are judged one by one.

    more         properties of the producers that are built from now on
    patience_ms  how long they wait for an answer
    sources      of the newest producer
    """

    sources: BothSources
    patience_ms = 1000

    def __init__(self, patch: pytest.MonkeyPatch, bootstrap: str, *names: str) -> None:
        self.verdicts: list[Verdict] = []
        self._fast: Any = import_module("hapax_fast")
        self.more: dict[str, Any] = {}

        def built(client: Callable[..., Any], properties: Any, log: Any) -> Any:
            made = build(client, {**properties, **self.more}, log)
            log.watch(NativeRequests(self._fast, self._fast.captured()))
            return made

        self.reset()
        patch.setattr(kafka_producer, "build", built)
        patch.setattr(kafka_producer, "ClientLog", functools.partial(BothSources, trial=self))
        self.parts = Parts(bootstrap, *names)

    def reset(self) -> None:
        """Build producers as the service does, that also write lines."""
        self.more = {
            "client.id": CLIENT,
            "debug": "broker",
            "plugin.library.paths": self._fast.PLUGIN,
            "socket.timeout.ms": self.patience_ms,
        }

    def __enter__(self) -> Self:
        self.parts.__enter__()
        return self

    def __exit__(self, *_error: object) -> None:
        self.parts.__exit__()

    def renew(self, **more: Any) -> None:
        """Build a producer with other properties."""
        self.reset()
        self.more |= {name.replace("_", "."): value for name, value in more.items()}
        self.replace()

    def judge(self, run: Callable[[], None]) -> Verdict:
        """Run a transaction; return both verdicts at its end, or when its producer died."""
        del self.verdicts[:]
        try:
            with suppress(BatchAbortedError):
                run()
        except ProducerDeadError:
            self.sources.end()
            self.replace()
        verdict = self.verdicts[-1]
        if self.parts.transaction.doubts:
            self.replace()
        return verdict

    def replace(self) -> None:
        """Build a new producer, and wait for brokers that are just away."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.parts.transaction.open()
            except ProducerDeadError:
                if time.monotonic() > deadline_s:
                    raise
            else:
                return


class Row(NamedTuple):
    """One line of the table: how many transactions ended, and how many each source doubted."""

    ended: int = 0
    requests: int = 0
    lines: int = 0

    def plus(self, verdicts: Iterable[Verdict]) -> Row:
        """Return the row with these, too."""
        ended = list(verdicts)
        return Row(
            self.ended + len(ended),
            self.requests + sum(bool(each.requests) for each in ended),
            self.lines + sum(bool(each.lines) for each in ended),
        )


HEADINGS = {
    True: "a request may still arrive: found",
    False: "no request can: false alarms",
    None: "chance decides: doubted",
}


class Table:
    """What was done, whether a request may still arrive afterwards, and what each source found."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, bool | None], Row] = {}

    def add(self, name: str, verdicts: Iterable[Verdict], *, late: bool | None) -> Row:
        """Add to the line of this name; return what is new in it. ``late`` None: chance decides."""
        found = list(verdicts)
        before = self._rows.get((name, late), Row())
        self._rows[name, late] = before.plus(found)
        return Row().plus(found)

    def text(self) -> str:
        """Return it as tables, which docs/decisions/own-detector.md sums up."""
        lines = []
        for late, heading in HEADINGS.items():
            rows = {name: row for (name, is_late), row in self._rows.items() if is_late == late}
            sums = Row(*(sum(each) for each in zip(*rows.values(), strict=True))) if rows else Row()
            lines += [
                f"| {heading} | transactions | by requests | by lines |",
                "|---|--:|--:|--:|",
                *(f"| {name} | {' | '.join(map(str, row))} |" for name, row in rows.items()),
                f"| **sum** | {' | '.join(f'**{each}**' for each in sums)} |",
                "",
            ]
        return "\n".join(lines)

    def note(self, folder: Path) -> None:
        """Leave it where a person can copy it from."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "doubts.md").write_text(self.text())
