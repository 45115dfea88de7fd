"""Spools that are broken on purpose: the judge must find out about each within a few schedules."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hapax.publish.drainer import Drainer
from hapax.spool import spool
from hapax.spool.spool import SpoolRow, SpoolStore
from tests.simulation.spool.disk import ModelDisk

Mutant = Callable[[pytest.MonkeyPatch], None]

_append, _publish, _go_on = SpoolStore.append, Drainer._publish, Drainer._go_on


def does_not_sync_commits(patch: pytest.MonkeyPatch) -> None:
    pragmas = [each.replace("synchronous=FULL", "synchronous=NORMAL") for each in spool._PRAGMAS]
    patch.setattr(spool, "_PRAGMAS", pragmas)


def acknowledges_without_writing_it_down(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SpoolStore, "_acknowledge", lambda _self, _sequence: None)


def writes_down_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    def broken(self: SpoolStore, records: Sequence[bytes], *more: Any) -> int:
        self._acknowledge(self.next + len(records))
        return _append(self, records, *more)

    patch.setattr(SpoolStore, "append", broken)


def never_syncs_the_folder(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ModelDisk, "sync", lambda _self: None)


def deletes_before_the_marker(patch: pytest.MonkeyPatch) -> None:
    def broken(self: Drainer, taken: Any) -> None:
        self._spool.delete_below(taken.following)
        _publish(self, taken)

    patch.setattr(Drainer, "_publish", broken)


def deletes_the_newest_record(patch: pytest.MonkeyPatch) -> None:
    def broken(self: SpoolStore, sequence: int) -> None:
        with self._mutex, self._transaction():
            self._connection.execute("DELETE FROM records WHERE first < ?", (sequence,))

    patch.setattr(SpoolStore, "delete_below", broken)


def believes_what_is_in_the_tables(patch: pytest.MonkeyPatch) -> None:
    def broken(row: Any, _first: int) -> SpoolRow:
        return SpoolRow(row[0], row[1], row[4])

    patch.setattr(spool, "_sound", broken)


def takes_what_is_there_for_all(patch: pytest.MonkeyPatch) -> None:
    def broken(self: SpoolStore) -> int | None:
        found = acknowledged(self)
        return None if found is None else spool.FIRST

    acknowledged = SpoolStore._acknowledged
    patch.setattr(SpoolStore, "_acknowledged", broken)


def believes_the_cache_after_a_failed_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SpoolStore, "_write_log_again", lambda _self: None)


def does_not_read_the_marker_after_a_doubt(patch: pytest.MonkeyPatch) -> None:
    def broken(self: Drainer, marked: Any) -> None:
        if not self.next:
            _go_on(self, marked)

    patch.setattr(Drainer, "_go_on", broken)


MUTANTS: dict[Mutant, int] = {
    does_not_sync_commits: 6,
    acknowledges_without_writing_it_down: 0,
    writes_down_what_is_not_committed: 0,
    never_syncs_the_folder: 0,
    deletes_before_the_marker: 24,
    deletes_the_newest_record: 0,
    believes_what_is_in_the_tables: 293,
    takes_what_is_there_for_all: 23,
    believes_the_cache_after_a_failed_sync: 5336,
    does_not_read_the_marker_after_a_doubt: 13,
}
"""Each with a seed that shows it."""
