import struct

import msgspec
import pytest
from hypothesis import given, strategies as st

from hapax.cluster.transaction_states import (
    Holder,
    TransactionState,
    blamed,
    decisions,
    explained,
    ours,
    state_of,
)

KEY = struct.pack(">hh", 0, 5) + b"app-0"
BODY = struct.pack(">qhib", 77, 3, 10_000, 1)
TIMES = struct.pack(">qq", 2_000, 1_500)


def plain(state: int = 1) -> bytes:
    """Return version 0: lists and texts with fixed lengths."""
    topics = struct.pack(">ih", 1, 3) + b"out" + struct.pack(">iii", 2, 4, 1)
    body = struct.pack(">qhib", 77, 3, 10_000, state)
    return struct.pack(">h", 0) + body + topics + TIMES


def flexible() -> bytes:
    """Return version 1: compact lists and texts, tagged fields."""
    topics = bytes([2, 4]) + b"out" + bytes([3]) + struct.pack(">ii", 4, 1) + bytes([0])
    tags = bytes([1, 2, 2]) + struct.pack(">h", 2)
    return struct.pack(">h", 1) + BODY + topics + TIMES + tags


EXPECTED = TransactionState(
    transactional_id="app-0",
    producer_id=77,
    epoch=3,
    timeout_ms=10_000,
    state="open",
    partitions=(("out", 1), ("out", 4)),
    updated_ms=2_000,
    started_ms=1_500,
)


@pytest.mark.parametrize("value", [plain(), flexible()], ids=["version 0", "version 1"])
def test_what_a_coordinator_wrote_is_read_and_an_id_that_was_forgotten_is_only_an_id(value):
    assert state_of(KEY, value) == EXPECTED
    assert state_of(KEY, None) == "app-0"
    state = state_of(KEY, struct.pack(">h", 0) + BODY + struct.pack(">i", -1) + TIMES)
    assert isinstance(state, TransactionState)
    assert state.partitions == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, plain()),
        (b"", plain()),
        (struct.pack(">hh", 9, 5) + b"app-0", plain()),
        (struct.pack(">hh", 0, 50) + b"app-0", plain()),
        (KEY, struct.pack(">h", 9) + plain()[2:]),
        (KEY, b""),
    ],
)
def test_what_is_not_known_is_left_out(key, value):
    assert state_of(key, value) is None


@given(key=st.binary(max_size=12), value=st.binary(max_size=60))
def test_no_bytes_make_the_reader_raise(key, value):
    state_of(key, value)
    state_of(KEY, value)
    state_of(KEY, plain()[:2] + value)
    state_of(KEY, flexible()[:2] + value)


def test_age_and_delay_count_from_the_start_of_an_open_transaction():
    assert EXPECTED.age_s(11_500) == 10.0
    assert not EXPECTED.overdue(21_500)
    assert EXPECTED.overdue(21_501)
    done = state_of(KEY, plain().replace(BODY, struct.pack(">qhib", 77, 3, 10_000, 4)))
    assert isinstance(done, TransactionState)
    assert (done.state, done.age_s(99_999), done.overdue(99_999)) == ("committed", None, False)


def test_ids_of_another_app_are_not_ours_and_a_gap_is_blamed_on_those_who_are_open_there():
    assert ours("app:0", "app")
    assert ours("app:0/1", "app")
    assert not ours("app-0", "app")
    assert ours("app/replay", "app")
    assert not ours("app2-0", "app")
    assert not ours("ap", "app")
    assert not ours("app-\udcff", "app")
    assert blamed(("out", 4), [EXPECTED]) == ["app-0"]
    assert blamed(("out", 3), [EXPECTED]) == []


HOLDER = Holder(topic="in", partition=0, producer_id=7, epoch=0, start=5, last_ms=0)


def _known(state: str, *partitions: tuple[str, int]) -> TransactionState:
    return msgspec.structs.replace(EXPECTED, producer_id=7, state=state, partitions=partitions)


@pytest.mark.parametrize(
    ("states", "decided_before", "expected"),
    [
        ([_known("open", ("in", 0))], {}, (False, "app-0", None)),
        ([_known("open", ("in", 1))], {}, (True, "app-0", None)),  # another partition
        ([_known("committed")], {}, (True, "app-0", "committed")),  # its marker was lost
        ([], decisions(_known("aborting", ("in", 0))), (True, "app-0", "aborted")),  # forgotten
        ([], {}, (True, None, None)),  # no coordinator knows it
    ],
)
def test_a_transaction_hangs_where_no_coordinator_has_it_open(states, decided_before, expected):
    one = explained(HOLDER, states, decided_before)
    assert (one.hanging, one.transactional_id, one.decided) == expected


def test_what_was_decided_here_outlives_a_new_registration_and_other_transactions():
    decided = decisions(_known("committing", ("in", 0))) | decisions(_known("aborting", ("in", 1)))
    assert explained(HOLDER, [_known("empty")], decided).decided == "committed"
    assert explained(HOLDER, [_known("aborted")], decided).decided == "committed"
    assert explained(HOLDER, [_known("empty")], {}).decided is None
    assert decisions(_known("committed", ("in", 0))) == {}


def test_each_state_has_the_name_that_kafka_gives_to_its_number():
    states = [state_of(KEY, plain(number)) for number in range(9)]
    assert [one.state if isinstance(one, TransactionState) else None for one in states] == [
        *("empty", "open", "committing", "aborting", "committed", "aborted", "dead", "fencing"),
        None,
    ]
