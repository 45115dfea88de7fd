import pytest

from hapax.core.headers import Retried
from hapax.core.records import Coordinates
from hapax.operations.trace import Effect, Sighting, Within, verdict

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
def test_the_verdict_says_what_became_of_a_record(one, words):
    assert words in verdict(one)
    replay = sighting(owner=OTHER)
    replay.original = OTHER
    assert replay.owner is None, "it owns the claim of its original"
    assert "filtered" in verdict(replay)


CALLS = {
    "waited_for": [{"record": "in/0/5", "seconds": 9.5}, {"record": "in/1/1", "seconds": 4.0}],
    "records": {"in/0/5": 9.5},
}
ROW = {"topic": "in", "partition": 0, "position": 8}


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"partitions": []}, "waiting: not processed yet, and w-0 does not have its partition"),
        ({"partitions": [ROW | {"position": 7}]}, "waiting: w-0 had not read it"),
        ({"partitions": [ROW | {"position": None}]}, "waiting: w-0 had not read it"),
        ({"partitions": [ROW]}, "waiting: read by w-0, whose batch is not committed"),
        (
            {"partitions": [ROW], "calls": CALLS},
            "waiting for its call or its commit: read by w-0, alongside in/0/5, which has been in",
        ),
        (
            {
                "partitions": [ROW | {"position": 7}],
                "calls": CALLS | {"records": {"in/0/7": 2.5, "in/0/10": 1.0}},
            },
            "waiting for its call, which has taken 2.5 s so far in w-0",
        ),
    ],
)
def test_what_a_process_has_read_and_calls_tells_why_a_record_waits(status, words):
    one = sighting(after=7, before=7)
    one.within = Within.of({"instance": "w-0", "calls": None, **status}, HERE)
    assert verdict(one).startswith(words)
    one.effects = [effect(visible=False)]
    assert "in progress" in verdict(one)


def test_a_record_that_waits_for_a_later_try_is_told_with_its_time():
    one = sighting()
    one.waits = Retried(
        of="in/0/7", timestamp=1, attempt=2, calls=4, move=9, until=1, due=1_700_000_000_000
    )
    assert verdict(one) == (
        "waiting for retry until 2023-11-14T22:13:20+00:00: later try 2, 4 calls so far"
    )
    one.effects = [effect()]
    assert verdict(one) == "done: 1 output"
