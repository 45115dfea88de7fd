from __future__ import annotations

import pytest

from hapax.core.headers import Retried
from hapax.core.records import Coordinates
from hapax.operations.trace_result import Effect, Sighting, verdict

HERE, OTHER = Coordinates("in", 0, 7), Coordinates("in", 1, 3)


def effect(part: str = "", *, error: str = "", visible: bool = True, at: int = 0) -> Effect:
    return Effect(
        at=Coordinates("out", 0, at),
        source=HERE,
        event_id=b"e",
        part=part,
        error=error,
        visible=visible,
    )


def sighting(
    *effects: Effect, before: int | None = 8, after: int | None = 8, owner: Coordinates = HERE
) -> Sighting:
    return Sighting(
        at=HERE,
        record=None,
        event_id=b"e",
        owners={"key": owner},
        before=before,
        after=after,
        effects=list(effects),
    )


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (sighting(after=7, before=7), "waiting"),
        (sighting(after=None, before=None), "waiting"),
        (sighting(effect(visible=False), after=7), "in progress"),
        (sighting(effect(), after=7), "BROKEN"),
        (sighting(effect()), "done: 1 output"),
        (sighting(effect("1/2"), effect("2/2")), "done: 2 outputs"),
        (sighting(effect("1/2")), "1 of 2 outputs were found"),
        (sighting(effect("1/2"), effect("1/2")), "BROKEN: 2 outputs of 2"),
        (sighting(effect(), effect(at=1)), "BROKEN: 2 outputs of 1"),
        (sighting(effect("x/y")), "done: 1 output"),
        (sighting(effect("1/" + "9" * 5_000)), "done: 1 output"),
        (sighting(effect(error="ValueError: no")), "dead letter: ValueError: no"),
        (sighting(effect(), effect(error="x")), "BROKEN: more than one effect"),
        (sighting(effect(visible=False)), "not decided yet"),
        (sighting(before=7), "just processed"),
        (sighting(owner=OTHER), "duplicate: its id belongs to in/1/3"),
        (sighting(), "filtered"),
    ],
)
def test_the_verdict_says_what_became_of_a_record(one: Sighting, words: str) -> None:
    assert words in verdict(one)


def test_a_replay_owns_the_claim_of_its_original() -> None:
    one = sighting(owner=OTHER)
    one.original = OTHER
    assert one.owner is None
    assert "filtered" in verdict(one)


def test_a_record_that_waits_for_a_later_try_is_told_with_its_time() -> None:
    one = sighting()
    one.waits = Retried(
        of="in/0/7", timestamp=1, attempt=2, calls=4, move=9, until=1, due=1_700_000_000_000
    )
    assert verdict(one) == (
        "waiting for retry until 2023-11-14T22:13:20+00:00: later try 2, 4 calls so far"
    )
    one.effects = [effect()]
    assert verdict(one) == "done: 1 output"
