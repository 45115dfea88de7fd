"""Spools that are broken on purpose: the judge must find out about each within a few schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hapax.publish.drainer import Drainer
from hapax.spool import recovery
from hapax.spool.frames import FRAMES_AT, packed_head
from hapax.spool.group_commit import GroupCommit
from hapax.spool.log import SpoolLog
from hapax.spool.segment import Segment, file_name
from tests.simulation.spool.disk import ModelDisk

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    Mutant = Callable[[pytest.MonkeyPatch], None]

_round, _publish, _read, _go_on = (
    GroupCommit._round,
    Drainer._publish,
    SpoolLog.read,
    Drainer._go_on,
)


def acknowledges_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    def broken(self: GroupCommit, group: Any) -> None:
        if group is not None:
            self._write(group)
            group.end()

    patch.setattr(GroupCommit, "_round", broken)


def acknowledges_after_one_sync(patch: pytest.MonkeyPatch) -> None:
    def broken(self: GroupCommit, group: Any) -> None:
        _round(self, group)
        if self._synced is not None:
            done, self._synced = self._synced, None
            done.end()

    patch.setattr(GroupCommit, "_round", broken)


def never_syncs_the_folder(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ModelDisk, "sync", lambda _self: None)


def deletes_before_the_marker(patch: pytest.MonkeyPatch) -> None:
    def broken(self: Drainer, taken: Any) -> None:
        self._spool.log.delete_below(taken.following)
        _publish(self, taken)

    patch.setattr(Drainer, "_publish", broken)


def leaves_a_torn_end(patch: pytest.MonkeyPatch) -> None:
    def broken(self: Segment) -> None:
        self.end = self.size()

    patch.setattr(Segment, "cut", broken)


def cuts_whatever_is_unsound(patch: pytest.MonkeyPatch) -> None:
    def broken(segment: Segment, *, last: bool) -> None:
        segment.certified = 0
        scan(segment, last=last)

    scan = recovery._scan
    patch.setattr(recovery, "_scan", broken)


def publishes_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    def broken(self: SpoolLog, *limits: int) -> Any:
        certified = self.certified_next, self._segments[-1].certified
        self.certified_next, self._segments[-1].certified = self.next, self._segments[-1].end
        try:
            return _read(self, *limits)
        finally:
            self.certified_next, self._segments[-1].certified = certified

    patch.setattr(SpoolLog, "read", broken)


def believes_the_cache_after_a_failed_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Segment, "rewrite", lambda _self, _begin: None)


def does_not_read_the_marker_after_a_doubt(patch: pytest.MonkeyPatch) -> None:
    def broken(self: Drainer, marked: Any) -> None:
        if not self.next:
            _go_on(self, marked)

    patch.setattr(Drainer, "_go_on", broken)


def names_a_segment_before_its_head_is_durable(patch: pytest.MonkeyPatch) -> None:
    def broken(cls: type[Segment], disk: Any, head: Any) -> Segment:
        name = file_name(head.first)
        file = disk.create(name)
        data = bytes(FRAMES_AT) + packed_head(head)
        file.write(0, data)
        disk.sync()
        return cls(name, file, head, len(data))

    patch.setattr(Segment, "created", classmethod(broken))


MUTANTS: dict[Mutant, int] = {
    acknowledges_before_the_sync: 0,
    acknowledges_after_one_sync: 47,
    never_syncs_the_folder: 4,
    deletes_before_the_marker: 10,
    leaves_a_torn_end: 16,
    cuts_whatever_is_unsound: 25,
    publishes_before_it_is_durable: 166,
    believes_the_cache_after_a_failed_sync: 497,
    does_not_read_the_marker_after_a_doubt: 7,
    names_a_segment_before_its_head_is_durable: 0,
}
"""Each with a seed that shows it."""
