"""Epochs: who may still end a transaction, and who may not. In memory and on a broker."""

import pytest

from hapax.core.errors import ProducerDeadError
from tests.kit.committing import Committing
from tests.kit.rulebook import Rulebook, fill, places, shown, unfenced, until

CALLS = ("send_offsets", "commit", "abort")


def call(world: Rulebook, transaction: Committing, name: str) -> None:
    """Make the next call of a producer inside its transaction."""
    if name == "commit":
        transaction.commit()
    elif name == "abort":
        transaction.send_offsets({("elsewhere", 0): 1})  # not ours: the producer rolls back
    else:
        transaction.send_offsets({places(world)[0]: 5})


def open_with(world: Rulebook, instance: str, value: bytes, offset: int) -> Committing:
    """Return a producer in a transaction with an output, and progress."""
    transaction = world.producer(unfenced(world), instance)
    transaction.open()
    fill(world, transaction, value, offset)
    return transaction


def test_a_transaction_older_than_its_timeout_is_aborted_and_its_producer_fenced(rulebook):
    world = rulebook(timeout_s=1.0)
    old = {name: open_with(world, name, b"never", 5) for name in CALLS}
    stable, high = world.ends()
    assert stable < high
    until(world, lambda: len(set(world.ends())) == 1)
    assert shown(world) == ([], None)
    for name, transaction in old.items():
        with pytest.raises(ProducerDeadError) as caught:
            call(world, transaction, name)
        assert caught.value.fenced, name
    assert shown(world) == ([], None)
    for offset, (name, transaction) in enumerate(old.items(), 1):
        transaction.open()
        fill(world, transaction, name.encode(), offset)
        transaction.commit()
    assert shown(world) == ([name.encode() for name in CALLS], len(CALLS))


def test_a_transaction_younger_than_its_timeout_is_left_alone(rulebook):
    world = rulebook(timeout_s=8.0)
    transaction = open_with(world, "w", b"a", 5)
    world.wait(1.2)  # at least one of the coordinator's scans
    transaction.commit()
    assert shown(world) == ([b"a"], 5)


def test_a_new_epoch_fences_the_older_producer_at_its_next_call(rulebook):
    world = rulebook()
    for offset, name in enumerate(CALLS, 1):
        older = open_with(world, name, b"never", 5)
        newer = world.producer(unfenced(world), name)
        newer.open()
        with pytest.raises(ProducerDeadError) as caught:
            call(world, older, name)
        assert caught.value.fenced, name
        fill(world, newer, name.encode(), offset)
        newer.commit()
    assert shown(world) == ([name.encode() for name in CALLS], len(CALLS))


def test_producers_of_other_ids_fence_nobody(rulebook):
    world = rulebook()
    one = open_with(world, "w", b"a", 5)
    world.producer(unfenced(world), "v").open()
    one.commit()
    assert shown(world) == ([b"a"], 5)
