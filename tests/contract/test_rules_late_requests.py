"""A request of one transaction that arrives inside the next (KAFKA-17754), in memory and real.

A broker takes it as long as the epoch is the same: records are lost or half visible, offsets move
back, and every call of the client succeeds. After a new epoch it is refused.
"""

import pytest

from hapax.core.errors import BatchAbortedError, ProducerDeadError
from hapax.core.record_path import Outputs
from tests.kit import rulebook as book
from tests.kit.committing import Committing

ENDS = [True, False]


def first(world: book.Rulebook, held: str, *, commit: bool = True) -> tuple[Committing, book.Late]:
    """End a transaction of which one request is held and sent again; return its producer."""
    late = world.hold(held)
    transaction = world.producer(book.unfenced(world))
    transaction.open()
    transaction.begin()
    book.send(world, transaction, b"1")
    if commit:
        transaction.send_offsets({book.places(world)[0]: 5})
        transaction.commit()
    else:
        with pytest.raises(BatchAbortedError):
            transaction.send_offsets({("elsewhere", 0): 1})
    assert transaction.doubts
    assert book.shown(world) == after(commit=commit)
    return transaction, late


def first_disregarded(
    world: book.Rulebook, held: str, *, commit: bool = True
) -> tuple[Committing, book.Late]:
    """End it likewise, and let the next one begin in spite of the doubt."""
    transaction, late = first(world, held, commit=commit)
    book.disregard(transaction)
    return transaction, late


def after(*, commit: bool) -> tuple[list[bytes | None], int | None]:
    """Return what the first transaction shows: outputs and offset."""
    return ([b"1"], 5) if commit else ([], None)


@pytest.mark.row("S-K1")
@pytest.mark.parametrize("commit", ENDS)
def test_nothing_begins_while_a_doubt_stands(rulebook, *, commit):
    world = rulebook()
    transaction, late = first(world, "TxnOffsetCommit" if commit else "EndTxn", commit=commit)
    for _ in range(2):
        with pytest.raises(ProducerDeadError, match=r"still be on its way|no producer"):
            transaction.begin()
    late.release()
    assert book.shown(world) == after(commit=commit)
    transaction.open()
    assert list(transaction.doubts) == []
    book.fill(world, transaction, b"2", 9)
    transaction.commit()
    assert book.shown(world) == ([*after(commit=commit)[0], b"2"], 9)


@pytest.mark.row("S-K1")
@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize("commit", ENDS)
def test_a_late_end_is_taken_inside_the_next_transaction_unless_its_epoch_is_old(
    rulebook, *, commit, fenced
):
    world = rulebook()
    transaction, late = first_disregarded(world, "EndTxn", commit=commit)
    before = after(commit=commit)
    if fenced:
        transaction.open()
    transaction.begin()
    book.send(world, transaction, b"2")
    assert late.release() == (book.INVALID_PRODUCER_EPOCH if fenced else book.ACCEPTED)
    if fenced:
        assert book.visible(world) == before
    else:
        early = [b"2"] if commit else []  # visible, and its progress is not
        assert book.shown(world) == ([*before[0], *early], before[1])
    transaction.send_offsets({book.places(world)[0]: 9})
    transaction.commit()
    lost = not commit and not fenced
    assert book.shown(world) == ([*before[0], *([] if lost else [b"2"])], 9)


@pytest.mark.parametrize("commit", ENDS)
def test_outputs_behind_a_late_end_are_refused(rulebook, *, commit):
    world = rulebook()
    transaction, late = first_disregarded(world, "EndTxn", commit=commit)
    transaction.begin()
    book.send(world, transaction, b"2")
    assert late.release() == book.ACCEPTED
    assert book.shown(world) == (([b"1", b"2"], 5) if commit else ([], None))
    transaction.send(Outputs([book.message(world, b"3")]))
    with pytest.raises((BatchAbortedError, ProducerDeadError)) as caught:  # noqa: PT012 - which call tells is open
        transaction.send_offsets({book.places(world)[0]: 9})
        transaction.commit()
    # Where the output was refused before the offsets were sent, the client says only that.
    if commit and "send_offsets: _STATE" not in str(caught.value):
        assert isinstance(caught.value, ProducerDeadError)  # it cannot be rolled back
        assert not caught.value.fenced
    transaction.open()
    assert book.shown(world) == (([b"1", b"2"], 5) if commit else ([], None))


@pytest.mark.row("S-K1")
@pytest.mark.parametrize("fenced", [False, True])
def test_late_offsets_move_the_progress_back_unless_their_epoch_is_old(rulebook, *, fenced):
    world = rulebook()
    transaction, late = first_disregarded(world, "TxnOffsetCommit")
    if fenced:
        transaction.open()
    book.fill(world, transaction, b"2", 9)
    assert late.release() == (book.INVALID_PRODUCER_EPOCH if fenced else book.ACCEPTED)
    transaction.commit()
    assert book.shown(world) == ([b"1", b"2"], 9 if fenced else 5)


def test_a_late_end_between_two_transactions_changes_nothing(rulebook):
    world = rulebook()
    transaction, late = first_disregarded(world, "EndTxn")
    assert late.release() == book.ACCEPTED
    assert book.shown(world) == ([b"1"], 5)
    transaction.begin()
    book.send(world, transaction, b"2")
    transaction.commit()
    assert book.shown(world) == ([b"1", b"2"], 5)


@pytest.mark.parametrize(
    "api", ["AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit"]
)
def test_any_other_late_request_and_offsets_before_the_next_outputs_do_no_harm(rulebook, api):
    world = rulebook()
    transaction, late = first_disregarded(world, api)
    transaction.begin()
    if api == "TxnOffsetCommit":
        assert late.release() == book.INVALID_TXN_STATE
    book.send(world, transaction, b"2")
    if api != "TxnOffsetCommit":
        assert late.release() == book.ACCEPTED
    transaction.send_offsets({book.places(world)[0]: 9})
    transaction.commit()
    assert book.shown(world) == ([b"1", b"2"], 9)


def test_a_late_registration_while_nothing_is_open_ends_in_a_time_out_that_fences(rulebook):
    world = rulebook(timeout_s=1.0)
    transaction, late = first_disregarded(world, "AddPartitionsToTxn")
    _, high = world.ends()
    assert late.release() == book.ACCEPTED
    book.until(world, lambda: world.ends()[1] > high)  # the marker of a transaction without records
    transaction.begin()
    with pytest.raises(ProducerDeadError) as caught:  # noqa: PT012 - which call tells is open
        transaction.send(Outputs([book.message(world, b"never")]))
        transaction.send_offsets({book.places(world)[0]: 9})
    assert caught.value.fenced
    assert book.shown(world) == ([b"1"], 5)
