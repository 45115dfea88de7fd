"""Whose progress a group believes, classic and KIP-848, in memory and on a broker."""

import pytest

from hapax.core.errors import BatchAbortedError, MemberFencedError
from tests.kit.committing import Committing
from tests.kit.rulebook import Claim, Member, Rulebook, places, send, share, shown, until


def offer(world: Rulebook, transaction: Committing, number: int, offset: int) -> bool:
    """Offer progress of one partition; whether it is believed. A refusal leaves nothing behind."""
    before = world.committed()
    transaction.begin()
    send(world, transaction, b"%d" % offset)
    try:
        transaction.send_offsets({places(world)[number]: offset})
    except BatchAbortedError as error:
        refusal = error
    else:
        transaction.commit()
        assert world.committed() == before | {places(world)[number]: offset}
        return True
    assert refusal.resolved
    outputs, _ = shown(world)
    assert world.committed() == before
    assert b"%d" % offset not in outputs
    return False


def opened(world: Rulebook, claim: Claim) -> Committing:
    """Return an open producer that says of itself what the claim says."""
    transaction = world.producer(claim)
    transaction.open()
    return transaction


def moved(world: Rulebook) -> tuple[Member, Member, bytes, int]:
    """Let a partition move; return old and new owner, the former's old metadata, and the number."""
    older = world.member("a")
    share(world, older)
    old = older.member()
    newer = world.member("b")
    share(world, older, newer)

    def generation(metadata: bytes) -> int:
        return world.identity(metadata)[1]

    both = (older, newer)
    until(world, lambda: len({generation(each.member()) for each in both}) == 1, *both)
    assert generation(older.member()) > generation(old)
    ((_, number),) = newer.assignment()
    return older, newer, old, number


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_progress_of_an_old_generation_is_refused_for_a_partition_that_moved(rulebook, kind):
    world = rulebook(kind)
    older, _newer, old, number = moved(world)
    transaction = opened(world, Claim(old, *places(world)))
    assert not offer(world, transaction, number, 5)
    # KIP-1251: the new protocol believes an old epoch for what its member has held since.
    assert offer(world, transaction, 1 - number, 5) == (kind == "consumer")
    # With its own eyes the producer sees that the partition is gone.
    honest = world.producer(older)
    honest.open()
    assert not offer(world, honest, number, 7)
    assert offer(world, honest, 1 - number, 6)


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_only_members_are_believed_but_whoever_names_none_and_whatever_is_whose(rulebook, kind):
    world = rulebook(kind)
    older, newer, _old, number = moved(world)
    live = older.member()
    member_id, generation = world.identity(live)
    claim = Claim(live, *places(world))
    transaction = opened(world, claim)
    for offset, (name, at, believed) in enumerate(
        [
            (member_id, generation, True),
            (member_id, generation + 1, False),
            (member_id, -1, False),
            ("stranger", generation, False),
            ("", generation, False),
            ("", -1, True),
        ],
        1,
    ):
        claim.metadata = world.metadata(name, at, live)
        # Of a partition that the other one owns: nobody asks.
        assert offer(world, transaction, number, offset) == believed, (name, at)
    claim.metadata = newer.member()
    world.leave(newer)
    assert not offer(world, transaction, number, 10)


def test_of_two_static_members_of_one_name_the_newer_fences_the_older(rulebook):
    world = rulebook("static")
    older = world.member("a")
    share(world, older)
    transaction = world.producer(older, "older")  # another id: only the group stands in its way
    transaction.open()
    newer = world.member("a")
    share(world, newer)
    # It does not know yet, or it does: refused either way.
    claim = Claim(older.member(), *places(world))
    assert not offer(world, opened(world, claim), 0, 5)
    with pytest.raises(MemberFencedError):
        until(world, lambda: False, older)
    transaction.begin()
    send(world, transaction, b"never")
    with pytest.raises((BatchAbortedError, MemberFencedError)):
        transaction.send_offsets({places(world)[0]: 5})
    assert shown(world) == ([], None)
    claim.metadata = newer.member()
    assert offer(world, opened(world, claim), 0, 6)
    assert shown(world) == ([b"6"], 6)


def test_a_static_member_that_comes_back_has_its_partitions_and_no_rebalance(rulebook):
    world = rulebook("static")
    older = world.member("a")
    share(world, older)
    name, generation = world.identity(older.member())
    world.leave(older)
    newer = world.member("a")
    share(world, newer)
    again = world.identity(newer.member())
    assert again[0] != name
    assert again[1] == generation
    claim = Claim(world.metadata(name, generation, newer.member()), *places(world))
    assert not offer(world, opened(world, claim), 0, 5)
