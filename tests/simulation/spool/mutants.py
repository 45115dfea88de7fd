"""Spools that are broken on purpose: the judge must find out about each within a few schedules."""

from collections.abc import Sequence
from typing import Any

from hapax.publish.drainer import Drainer
from hapax.spool import spool
from hapax.spool.spool import SpoolRow, SpoolStore
from tests.kit.mutants import Mutant, Patch, in_place_of
from tests.simulation.spool.disk import ModelDisk


def does_not_sync_commits(patch: Patch) -> None:
    pragmas = [each.replace("synchronous=FULL", "synchronous=NORMAL") for each in spool._PRAGMAS]
    patch(spool, "_PRAGMAS", pragmas)


def acknowledges_without_writing_it_down(patch: Patch) -> None:
    patch(SpoolStore, "_acknowledge", lambda _self, _sequence: None)


@in_place_of(SpoolStore, "append")
def writes_down_what_is_not_committed(
    append: Any, self: SpoolStore, records: Sequence[bytes], *more: Any
) -> Any:
    self._acknowledge(self.next + len(records))
    return append(self, records, *more)


def never_syncs_the_folder(patch: Patch) -> None:
    patch(ModelDisk, "sync", lambda _self: None)


@in_place_of(Drainer, "_publish")
def deletes_before_the_marker(publish: Any, self: Drainer, taken: Any) -> None:
    self._spool.delete_below(taken.following)
    publish(self, taken)


@in_place_of(SpoolStore, "delete_below")
def deletes_the_newest_record(_real: Any, self: SpoolStore, sequence: int) -> None:
    with self._mutex, self._transaction():
        self._connection.execute("DELETE FROM records WHERE first < ?", (sequence,))


@in_place_of(spool, "_sound")
def believes_what_is_in_the_tables(_real: Any, row: Any, _first: int) -> SpoolRow:
    return SpoolRow(row[0], row[1], row[4])


@in_place_of(SpoolStore, "_acknowledged")
def takes_what_is_there_for_all(acknowledged: Any, self: SpoolStore) -> int | None:
    return None if acknowledged(self) is None else spool.FIRST


def believes_the_cache_after_a_failed_sync(patch: Patch) -> None:
    patch(SpoolStore, "_write_log_again", lambda _self: None)


@in_place_of(Drainer, "_go_on")
def does_not_read_the_marker_after_a_doubt(go_on: Any, self: Drainer, marked: Any) -> None:
    if not self.next:
        go_on(self, marked)


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
