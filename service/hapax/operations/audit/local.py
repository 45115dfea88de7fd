"""The audit in this process: ranges are read one after the other, SQLite judges their rows.

SQLite keeps what fits into its cache in memory and the rest in a file without a name, which the
operating system deletes with the process. Its sorts work the same way, so memory is bounded
whatever is read. The database is a workspace of one thread: no journal, no commit.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from hapax.operations.audit.judgement import EFFECTS, INPUTS
from hapax.operations.audit.result import IncompleteError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hapax.core.ports import Tell
    from hapax.operations.audit.judgement import Ranges, Row, View

CACHE_KB = 64 * 1024
"""Memory of the tables; each sort may take as much again."""
_SETTINGS = f"""
pragma journal_mode = off;
pragma synchronous = off;
pragma temp_store = file;
pragma cache_size = -{CACHE_KB};
"""
_STEPS = 1_000_000
"""Of SQLite's machine, between two reports and looks for Ctrl-C."""


class LocalAudit:
    """Reads and judges in this process; see hapax.operations.audit.judgement.Engine."""

    cores = 1

    def __init__(self, report: Tell) -> None:
        self._report = report
        self._base = sqlite3.connect("", isolation_level=None)
        self._base.executescript(f"{_SETTINGS}begin;")
        self._base.set_progress_handler(self._judging, _STEPS)
        self.load("inputs", INPUTS, [])
        self.load("effects", EFFECTS, [])

    @classmethod
    @contextmanager
    def opened(cls, report: Tell) -> Iterator[LocalAudit]:
        audit = cls(report)
        with closing(audit._base):
            yield audit

    def read(self, table: str, task: Ranges, what: str) -> None:
        offsets = sum(one.end - one.start for one in task.stretches)
        done = 0
        for number, one in enumerate(task.stretches):
            ended = False
            self._report(what, done, offsets)
            for rows in task(number):
                if rows:
                    ended = rows[-1][1] is None
                    self.add(table, rows)
                    at = one.end if ended else rows[-1][1]
                    self._report(what, done + at - one.start, offsets)
            if not ended:
                raise IncompleteError(f"{one.topic}/{one.partition} was not read to its end")
            done += one.end - one.start

    def load(self, table: str, columns: str, rows: Sequence[Row]) -> None:
        names = ", ".join(column.split()[0] for column in columns.split(","))
        self.rows(f"create table {table} ({names})")
        self.add(table, rows)

    def add(self, table: str, rows: Sequence[Row]) -> None:
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            with _refused():
                self._base.executemany(f"insert into {table} values ({marks})", rows)  # noqa: S608 - own names

    def define(self, view: View) -> None:
        self._judging()
        kind = "view" if view.by is None else "table"
        self.rows(f"create {kind} {view.name} as {view.query}")
        if view.by:
            self.rows(f"create index by_{view.name} on {view.name} ({view.by})")

    def rows(self, query: str) -> list[Row]:
        with _refused():
            return list(self._base.execute(query))

    def _judging(self) -> int:
        self._report("judging")
        return 0


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:  # the handler met Ctrl-C
            raise KeyboardInterrupt from error
        raise IncompleteError(
            f"the workspace of the audit failed: {error}. About 250 bytes for each input record are"
            " needed in the temporary folder (TMPDIR); name one with room, or use --engine spark"
        ) from error
