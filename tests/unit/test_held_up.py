"""Which partition a response that is too large belongs to; the client is made by hand."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from hapax.core.errors import BatchAbortedError
from hapax.kafka.consume import positions as held_up
from hapax.kafka.consume.partition_state import PartitionStates
from hapax.kafka.consume.positions import LOOK_S, RETRY_LARGE_S, HeldUpPartitions
from hapax.kafka.undecodable import TooLarge
from tests.kit.claim_stores import Hand

P0, P1, P2 = ("in", 0), ("in", 1), ("in", 2)
LINE = ("FAIL", "c-1", "b/1: Receive failed: Invalid response size 3000149 (0..2000000): increase")


class Reading:
    """Three partitions of which each has 10 records; those in ``large`` begin with a large one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, large: set[tuple[str, int]]) -> None:
        self.large, self.clock = large, Hand()
        self.asked: list[tuple[str, int]] = []
        self.held: dict[tuple[str, int], bool] = {}
        self.read_on: list[tuple[tuple[str, int], int]] = []
        self.cut = False
        self.log = SimpleNamespace(too_large=TooLarge())
        self.properties = {"group.instance.id": "shop-0"}
        self.states = PartitionStates(self.clock)
        for where in (P0, P1, P2):
            self.states[where].next = 5
        positions = SimpleNamespace(read_on=lambda where, at: self.read_on.append((where, at)))
        self.held_up = HeldUpPartitions(*cast("Any", (self, self.states, positions, self.clock)))
        monkeypatch.setattr(held_up, "too_large", self._too_large)

    def _too_large(self, properties: dict[str, Any], where: tuple[str, int], at: int) -> str:
        assert (properties, at) == ({}, 5)
        self.asked.append(where)
        self.clock.now_s += 0.8
        return "too large" if where in self.large else ""

    def offsets(self, partitions: dict[tuple[str, int], int], _at: int) -> dict[Any, int]:
        if self.cut:
            raise BatchAbortedError("the connection broke")
        return dict.fromkeys(partitions, 10)

    def hold(self, where: tuple[str, int], _why: str, *, held: bool) -> None:
        self.held[where] = held

    def hear(self) -> None:
        """Let the client say it, and attend a while later."""
        self.log.too_large.log(40, "%s", *LINE)
        self.clock.now_s += LOOK_S
        self.held_up.attend()


def test_while_no_such_line_is_heard_nothing_is_asked(monkeypatch):
    reading = Reading(monkeypatch, {P1})
    reading.log.too_large.log(40, "%s", "FAIL", "c-1", "b/1: Disconnected")
    reading.held_up.attend()
    assert reading.asked == []


def test_the_partition_that_stands_still_before_a_large_record_is_held_and_named(monkeypatch):
    reading = Reading(monkeypatch, {P1})
    reading.hear()
    reading.states[P0].next = 6
    reading.hear()
    assert reading.asked == [P1, P2], "what moves is not asked for"
    assert {where: one.offset for where, one in reading.states.stuck.known.items()} == {P1: 5}
    assert reading.held == {P1: True}


def test_at_first_what_nothing_was_handed_out_of_is_asked_for(monkeypatch):
    reading = Reading(monkeypatch, {P2})
    reading.states[P2].settled = 5
    reading.hear()
    assert reading.held == {P2: True}


def test_what_was_found_fine_lets_others_come_first(monkeypatch):
    reading = Reading(monkeypatch, set())
    monkeypatch.setattr(held_up, "SEARCH_S", 0.5)
    for _ in range(4):
        reading.hear()
    assert reading.asked == [P0, P1, P2]


def test_ends_that_cannot_be_told_are_asked_for_with_the_next_line(monkeypatch):
    reading = Reading(monkeypatch, {P1})
    reading.hear()
    reading.cut = True
    reading.hear()
    assert reading.held == {}
    reading.cut = False
    reading.hear()
    assert reading.held == {P1: True}


def test_a_large_one_is_read_again_only_once_it_is_gone(monkeypatch):
    reading = Reading(monkeypatch, {P1})
    reading.hear()
    reading.hear()
    reading.asked.clear()
    reading.clock.now_s += RETRY_LARGE_S
    reading.held_up.attend()
    assert (reading.asked, reading.held, reading.read_on) == ([P1], {P1: True}, [])
    reading.large.clear()
    reading.clock.now_s += RETRY_LARGE_S
    reading.held_up.attend()
    assert (reading.held, reading.read_on) == ({P1: False}, [(P1, 5)])
