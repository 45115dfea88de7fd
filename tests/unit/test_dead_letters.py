import pytest

from hapax.core.dead_letters import Replayed, Wanted, dead_letter, note, replay
from hapax.core.errors import HapaxError
from hapax.core.plan import Destinations, Planner
from hapax.core.records import Coordinates, Record
from hapax.core.transform import Failure

FAILED = Record("in", 3, 7, b"k", b"\xff\x00", (("trace", b"t"), ("trace", None)), 1_000)


def letter_of(record: Record, *, at: int = 0) -> Record:
    """Return the dead letter that a pipeline writes of this record."""
    planner = Planner(Destinations("app", "out", "dead"))
    failure = Failure("ValueError", "no: number", 3)
    (message,) = planner.plan([record], [b"e-1"], [failure], {}).messages
    headers = tuple(message.headers)
    assert message.timestamp_ms is not None
    return Record("dead", 0, at, message.key, message.value, headers, message.timestamp_ms)


def as_record(message: object, at: int) -> Record:
    headers = tuple(message.headers)  # type: ignore[attr-defined]
    return Record("dead", 0, at, message.key, message.value, headers)  # type: ignore[attr-defined]


def test_a_dead_letter_tells_what_failed_where_and_why():
    one = dead_letter(letter_of(FAILED))
    assert one is not None
    assert (one.source, one.original) == (FAILED.coordinates, FAILED.coordinates)
    assert (one.event_id, one.reason, one.error) == (b"e-1", "ValueError", "ValueError: no: number")
    assert (one.attempts, one.app, one.readable) == (3, "app", True)


def test_a_replay_is_the_record_as_it_came_and_names_its_original():
    one = dead_letter(letter_of(FAILED))
    assert one is not None
    message = replay(one, ["in"])
    assert (message.topic, message.partition, message.timestamp_ms) == ("in", 3, 1_000)
    assert (message.key, message.value) == (FAILED.key, FAILED.value)
    assert message.headers == [*FAILED.headers, ("hapax-replay-of", b"in/3/7")]


def test_a_replay_that_fails_again_goes_on_replaying_its_original():
    one = dead_letter(letter_of(FAILED))
    assert one is not None
    again = Record("in", 3, 90, b"k", b"v", tuple(replay(one, ["in"]).headers))
    second = dead_letter(letter_of(again, at=5))
    assert second is not None
    assert (second.source, second.original) == (Coordinates("in", 3, 90), FAILED.coordinates)
    assert replay(second, ["in"]).headers[-1] == ("hapax-replay-of", b"in/3/7")


def test_a_replay_of_a_made_up_topic_names_its_own_record():
    stranger = Record("in", 3, 7, b"k", b"v", (("hapax-replay-of", b"made-up/0/1"),))
    one = dead_letter(letter_of(stranger))
    assert one is not None
    assert replay(one, ["in"]).headers == [("hapax-replay-of", b"in/3/7")]


def test_headers_of_strangers_make_nothing_raise():
    headers = (
        ("hapax-error", b"\xff"),
        ("hapax-source", b"in/0/1"),
        ("hapax-attempts", b"9" * 5_000),
    )
    one = dead_letter(Record("dead", 0, 0, None, b"v", headers))
    assert one is not None
    assert (one.error, one.attempts) == ("\\xff", 999_999_999)


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("hapax-source", b"in/0/1"),),
        (("hapax-error", b"x"),),
        (("hapax-error", b"x"), ("hapax-source", b"nonsense")),
        (("hapax-error", b"x"), ("hapax-source", b"\xff/0/1")),
    ],
)
def test_what_no_hapax_wrote_is_no_dead_letter(headers):
    assert dead_letter(Record("dead", 0, 0, None, b"v", headers)) is None


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        (Wanted(), True),
        (Wanted(reason="valueerr"), True),
        (Wanted(reason="NO: num"), True),
        (Wanted(reason="KeyError"), False),
        (Wanted(since_ms=1_000, until_ms=1_001), True),
        (Wanted(since_ms=1_001), False),
        (Wanted(until_ms=1_000), False),
        (Wanted(event_id=b"e-1"), True),
        (Wanted(event_id=b"e"), False),
        (Wanted(source="in"), True),
        (Wanted(source="in/3"), True),
        (Wanted(source="in/3/7"), True),
        (Wanted(source="in/3/70"), False),
        (Wanted(source="i"), False),
        (Wanted(source="in", reason="KeyError"), False),
    ],
)
def test_all_that_is_asked_for_must_hold(wanted: Wanted, meant: bool) -> None:  # noqa: FBT001
    one = dead_letter(letter_of(FAILED))
    assert one is not None
    assert wanted.has(one) is meant


def test_a_note_names_every_dead_letter_that_was_replayed_and_no_other():
    message = note("dead", 0, [9, 3, 4, 5], app="app", now_ms=5)
    assert (message.topic, message.partition, message.timestamp_ms) == ("dead", 0, 5)
    replayed = Replayed()
    assert replayed.take(as_record(message, 20))
    assert dead_letter(as_record(message, 20)) is None
    letters = {at: dead_letter(letter_of(FAILED, at=at)) for at in range(12)}
    assert [at for at, one in letters.items() if one is not None and one in replayed] == [
        3,
        4,
        5,
        9,
    ]
    assert not replayed.take(letter_of(FAILED))


def test_notes_of_one_partition_say_nothing_of_another():
    replayed = Replayed()
    replayed.take(as_record(note("dead", 1, [3], app="app", now_ms=5), 20))
    one = dead_letter(letter_of(FAILED, at=3))
    assert one is not None
    assert one not in replayed


def test_a_note_of_a_huge_stretch_costs_no_memory_and_counts():
    replayed = Replayed()
    value = b'{"partition": 0, "offsets": [[0, 4611686018427387904]]}'
    replayed.take(Record("dead", 0, 1, None, value, (("hapax-replayed", b"1"),)))
    one = dead_letter(letter_of(FAILED, at=3))
    assert one is not None
    assert one in replayed


@pytest.mark.parametrize("value", [None, b"", b"[]", b'{"partition": 0}', b"\xff"])
def test_a_note_that_cannot_be_read_stops_every_replay(value):
    with pytest.raises(HapaxError, match="dead/0/8"):
        Replayed().take(Record("dead", 0, 8, None, value, (("hapax-replayed", b"1"),)))
