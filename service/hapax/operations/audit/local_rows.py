"""The two tables of an audit in one process: narrow rows in a temporary SQLite database.

SQLite keeps what fits into its cache in memory and the rest in a file without a name, which the
operating system deletes with the process. Its sorts work the same way, so memory is bounded
whatever is read. The database is a workspace of one thread: no journal, no commit.
"""

from __future__ import annotations

import sqlite3
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from hapax.operations.audit.result import IncompleteError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    Row = tuple[Any, ...]
    Key = tuple[int, int]

CACHE_KB = 64 * 1024
"""Memory of the tables; each sort may take as much again."""
_SCHEMA = """
pragma journal_mode = off;
pragma synchronous = off;
pragma temp_store = file;
create table inputs
    (place, offset, visible, owner_place, owner_offset, id, outputs, content);
create table effects (lane, at, place, offset, slot, parts, content, unchecked, id);
create table disordered (place, offset, slot, parts, lane, at, last);
create table shared (id primary key) without rowid;
create table old (id primary key) without rowid;
create table copies
    (id, place, offset, owner_place, owner_offset, judged, due, effects, counts, lane, at);
"""


class AuditRows:
    """Takes rows in any order, returns them sorted. Raises IncompleteError when the disk is full.

    inputs      (place, offset, visible, owner_place, owner_offset, id, outputs, content)
    effects     (lane, at, place, offset, slot, parts, content, unchecked, id)
    disordered  (place, offset, slot, parts, lane, at, last): effects after one of a later record
    copies      of an id that several records have:
                (id, place, offset, owner_place, owner_offset, judged, due, effects, counts,
                lane, at), ``counts``: it has an effect that the claims decided
    """

    def __init__(self) -> None:
        self._base = sqlite3.connect("", isolation_level=None)
        self._base.executescript(f"pragma cache_size = -{CACHE_KB};{_SCHEMA}begin;")

    def close(self) -> None:
        self._base.close()

    def add(self, table: str, rows: Iterable[Row], columns: int) -> None:
        """Add rows; ``columns``: how many they have."""
        marks = ", ".join("?" * columns)
        try:
            self._base.executemany(f"insert into {table} values ({marks})", rows)  # noqa: S608 - own names
        except sqlite3.Error as error:
            raise _failed(error) from error

    def count(self, table: str) -> int:
        found: int = next(self._read(f"select count(*) from {table}"))[0]  # noqa: S608 - own names
        return found

    def index_ids(self) -> None:
        """Find the ids that several records have, and those whose record is no longer there."""
        self._run(
            "insert into shared select id from inputs where visible and id is not null"
            " group by id having count(*) > 1"
        )
        self._run(
            "insert into old select distinct id from effects where id is not null order by id"
        )

    def inputs(self) -> Iterator[Row]:
        """Yield by (place, offset), and with each whether other records share its id."""
        return self._read(
            "select i.*, s.id is not null from inputs i left join shared s on s.id = i.id"
            " order by i.place, i.offset"
        )

    def effects_by_lane(self) -> Iterator[Row]:
        """Yield (lane, at, place, offset, slot, parts) by (lane, at)."""
        return self._read(
            "select lane, at, place, offset, slot, parts from effects order by lane, at"
        )

    def effects_by_record(self) -> Iterator[Row]:
        """Yield (place, offset, slot, parts, content, unchecked, lane, at) in this order."""
        return self._read(
            "select place, offset, slot, parts, content, unchecked, lane, at from effects"
            " where place >= 0 order by place, offset, slot, parts"
        )

    def disordered(self) -> Iterator[Row]:
        return self._read("select * from disordered order by place, offset, lane, at")

    def copies(self) -> Iterator[Row]:
        return self._read("select * from copies order by id, place, offset")

    def is_old(self, event_id: bytes) -> bool:
        """Whether an effect names a record with this id that is no longer there."""
        return bool(list(self._read("select 1 from old where id = ?", (event_id,))))

    def first_named(self, lanes: Sequence[int]) -> dict[int, int]:
        marks = ", ".join("?" * len(lanes))
        rows = self._read(
            f"select place, min(offset) from effects where lane in ({marks}) and place >= 0"  # noqa: S608 - own names
            " group by place, lane",
            tuple(lanes),
        )
        first: dict[int, int] = {}
        for place, offset in rows:
            first[place] = max(first.get(place, 0), offset)
        return first

    def _run(self, statement: str) -> None:
        for _row in self._read(statement):
            pass

    def _read(self, statement: str, values: Row = ()) -> Iterator[Row]:
        try:
            yield from self._base.execute(statement, values)
        except sqlite3.Error as error:
            raise _failed(error) from error


class GroupedRows:
    """Rows that are sorted by their first two columns, taken key by key."""

    def __init__(self, rows: Iterator[Row]) -> None:
        self._groups = groupby(rows, itemgetter(0, 1))
        self.key: Key | None = None
        self._rows: Iterator[Row] = iter(())
        self._next()

    def take(self) -> Iterator[Row]:
        """Yield the rows of ``key``, then go to the next one; exhaust it before the next call."""
        yield from self._rows
        self._next()

    def _next(self) -> None:
        self.key, self._rows = next(self._groups, (None, iter(())))


def _failed(error: sqlite3.Error) -> IncompleteError:
    return IncompleteError(
        f"the workspace of the audit failed: {error}. About 250 bytes for each input record are"
        " needed in the temporary folder (TMPDIR); name one with room, or use --engine spark"
    )
