"""The Transaction port: what every implementation keeps, in memory and on a broker."""

import pytest

from hapax.core.errors import BatchAbortedError, ProducerDeadError
from hapax.core.record_path import Outputs
from tests.kit.worlds import BYTES_MAX, World, joined, message, take

TEN = [b"%d" % number for number in range(10)]


@pytest.fixture
def ready(world):
    world.write(*TEN)
    joined(world)
    world.transaction.open()
    take(world, 10)
    return world


def begin(world: World, *sent: bytes | None) -> None:
    world.transaction.begin()
    world.transaction.send(Outputs([message(world, value) for value in sent]))


def commit(world: World, offset: int) -> None:
    world.transaction.send_offsets({(world.topic, 0): offset})
    world.transaction.commit()


def values(world: World) -> list[bytes | None]:
    return [record.value for record in world.outputs()]


def test_outputs_and_progress_become_visible_together(ready):
    begin(ready, b"a", None, b"", b"b")
    ready.transaction.send_offsets({(ready.topic, 0): 4})
    assert values(ready) == []
    ready.transaction.commit()
    assert values(ready) == [b"a", None, b"", b"b"]
    assert ready.committed() == {(ready.topic, 0): 4}
    assert ready.source.committed([(ready.topic, 0)]) == {(ready.topic, 0): 4}
    record = ready.outputs()[0]
    assert (record.key, record.timestamp_ms) == (b"key", 1_700_000_000_000)
    assert record.headers == (("h", b"1"), ("n", None))


def test_one_transaction_after_another_keeps_order(ready):
    for number in range(1, 6):
        begin(ready, b"%d" % number, b"%d!" % number)
        commit(ready, number)
    expected = [value for number in range(1, 6) for value in (b"%d" % number, b"%d!" % number)]
    assert values(ready) == expected
    assert ready.committed() == {(ready.topic, 0): 5}
    assert list(ready.transaction.doubts) == []


@pytest.mark.row("FLINK-31363")
def test_progress_alone_can_be_committed(ready):
    ready.transaction.begin()
    commit(ready, 10)
    assert (values(ready), ready.committed()) == ([], {(ready.topic, 0): 10})


@pytest.mark.row("G4")
def test_progress_of_a_partition_that_is_not_ours_rolls_everything_back(ready):
    begin(ready, b"never")
    with pytest.raises(BatchAbortedError) as caught:
        ready.transaction.send_offsets({(ready.topic, 0): 4, (ready.topic, 77): 1})
    assert caught.value.resolved
    begin(ready, b"a")
    commit(ready, 1)
    assert (values(ready), ready.committed()) == ([b"a"], {(ready.topic, 0): 1})


@pytest.mark.row("G4")
def test_progress_without_membership_rolls_everything_back_and_without_a_producer_none_begins(
    world,
):
    with pytest.raises(ProducerDeadError):
        world.transaction.begin()
    world.transaction.open()
    begin(world, b"never")
    with pytest.raises(BatchAbortedError) as caught:
        world.transaction.send_offsets({})
    assert caught.value.resolved
    assert (values(world), world.committed()) == ([], {})


def test_a_message_too_large_to_send_is_named_and_nothing_of_its_batch_is_visible(ready):
    ready.transaction.begin()
    messages = [message(ready, b"a"), message(ready, b"x" * (BYTES_MAX + 1)), message(ready, b"b")]
    with pytest.raises(BatchAbortedError) as caught:
        ready.transaction.send(Outputs(messages))
    assert caught.value.content
    assert caught.value.resolved
    assert set(caught.value.refused) == {1}
    begin(ready, b"a", b"b")
    commit(ready, 3)
    assert (values(ready), ready.committed()) == ([b"a", b"b"], {(ready.topic, 0): 3})


def test_a_message_that_the_broker_refuses_rolls_back_and_blames_the_content(ready: World) -> None:
    # The first attempt asks for no delivery reports, so it may only know that something failed.
    blamed: list[bool] = []
    while not any(blamed):
        assert len(blamed) < 3
        with pytest.raises(BatchAbortedError) as caught:  # noqa: PT012 - which call tells is open
            begin(ready, b"a", b"x" * (BYTES_MAX // 2 + 1000), b"b")
            commit(ready, 3)
        blamed.append(caught.value.content)
        if ready.transaction.doubts:  # the refused message left a gap in the sequence numbers
            ready.transaction.open()
    assert (values(ready), ready.committed()) == ([], {})
    begin(ready, b"a", b"b")
    commit(ready, 3)
    assert (values(ready), ready.committed()) == ([b"a", b"b"], {(ready.topic, 0): 3})


def test_a_transaction_is_as_old_as_its_begin(ready):
    begin(ready, b"a")
    young_s = ready.transaction.age_s
    commit(ready, 1)
    old_s = ready.transaction.age_s
    assert 0 <= young_s < old_s
    ready.transaction.begin()
    assert ready.transaction.age_s < old_s
    commit(ready, 2)


def test_an_open_transaction_leaves_no_stable_offset_and_its_end_does(ready):
    where = (ready.topic, 0)
    begin(ready, b"a")
    ready.transaction.send_offsets({where: 4})
    with pytest.raises(BatchAbortedError) as caught:
        ready.source.committed([where])
    assert not caught.value.resolved
    ready.transaction.commit()
    assert ready.source.committed([where]) == {where: 4}
