"""How each anomaly is provoked: aimed faults, each of which says how often it really struck.

``request`` in the names is one that reached the broker after its time: KAFKA-17754.
"""

import random
import time

from tests.fault.controls.stand import PATIENCE_S, Stand
from tests.kit.faults import ALWAYS, Rule
from tests.kit.topics import unmarked
from tests.kit.waiting import reaches

ILLEGAL_GENERATION = 22
INVALID_RECORD = 87
CONCURRENT_TRANSACTIONS = 51
STALL_MAX_S = 8.0
"""Below the transaction timeout, 10 s there: longer means that nobody ended what a kill left."""


def nothing(_stand: Stand) -> int:
    _stand.await_progress(1000)
    return 1


def kills(stand: Stand) -> int:
    """SIGKILL, and back at once, whenever it has made some progress."""
    rng = random.Random(stand.name)
    for _ in range(6):
        stand.await_progress()
        time.sleep(rng.uniform(0.1, 0.6))  # a moment in no step with what it does
        stand.members["w-0"].restart()
    stand.await_progress()
    return 6


def kill_in_commit(stand: Stand) -> int:
    """SIGKILL while EndTxn is on its way; it never arrives."""
    for _ in range(2):
        end = stand.arm("EndTxn", "hold", commits=True)
        end.wait_hit()
        stand.members["w-0"].kill()
        end.discard()
        stand.proxy.remove(end)
        stand.members["w-0"].start()
        stand.await_progress()
    return 2


def kill_between(stand: Stand) -> int:
    """SIGKILL when one EndTxn has not arrived and a later one has."""
    end = stand.arm("EndTxn", "hold", commits=True)
    end.wait_hit()
    later = stand.arm("EndTxn", "watch", commits=True)
    stand.await_(later.answered.is_set, "a later commit")
    stand.members["w-0"].kill()
    end.discard()
    stand.proxy.clear()
    stand.members["w-0"].start()
    stand.await_progress()
    return 1


def aborts(stand: Stand) -> int:
    """Make the group refuse the offsets of some transactions, as in a rebalance."""
    rules = [
        stand.arm("TxnOffsetCommit", "refuse", nth=nth, code=ILLEGAL_GENERATION)
        for nth in (2, 5, 9)
    ]
    stand.await_(lambda: all(rule.hits for rule in rules), "refused offsets")
    stand.await_progress()
    return sum(rule.hits for rule in rules)


def refused_records(stand: Stand) -> int:
    """Make a broker refuse records that it has in fact written."""
    rules = [stand.arm("Produce", "refuse", nth=nth, code=INVALID_RECORD) for nth in (2, 9)]
    stand.await_(lambda: all(rule.hits for rule in rules), "refused records")
    stand.await_progress()
    return sum(rule.hits for rule in rules)


def lost_answer(stand: Stand) -> int:
    """Commit, and never tell the client."""
    end = stand.arm("EndTxn", "mute_after", commits=True)
    end.wait_hit()
    end.wait_answered()
    stand.await_progress()
    return end.hits


def joins(stand: Stand) -> int:
    """Let a second member come while the first is in the middle of a transaction, and go again."""
    gate = stand.gate()
    for _ in range(2):
        stand.await_progress()
        gate.close()
        stand.await_(lambda: gate.reached, "the gate")
        asked = stand.arm("JoinGroup", "watch", "w-1")
        stand.member("w-1")
        asked.wait_hit()
        stand.arm("Heartbeat", "watch").wait_answered()  # which says that the group shares out anew
        gate.open()
        stand.await_progress(300)
        stand.members["w-1"].terminate()
    stand.await_progress()
    return 2


def zombie(stand: Stand) -> int:
    """Freeze a member inside business code until another has its partitions, then wake it up."""
    first, gate = stand.members["w-0"], stand.gate()
    gate.close()
    stand.await_(lambda: gate.reached, "the gate")
    stand.member("w-1")
    first.freeze()
    before = stand.committed()
    stand.await_(
        lambda: all((at or 0) > (before[n] or 0) for n, at in stand.committed().items()),
        "a take-over of all partitions",
    )
    first.thaw()
    # It learns from its next heartbeat that it is no member any more, business code or not.
    time.sleep(1.0)
    gate.open()
    stand.await_progress()
    return 1


def orphan(stand: Stand) -> int:
    """SIGKILL with a transaction open; see how long readers stand still behind it."""
    end = stand.arm("EndTxn", "hold", commits=True)
    end.wait_hit()
    stand.members["w-0"].kill()
    end.discard()
    stand.proxy.remove(end)
    before = stand.visible()
    began_s = time.monotonic()
    stand.members["w-0"].start()
    stand.await_(lambda: stand.visible() > before, "readers go on")
    stalled_s = time.monotonic() - began_s
    if stalled_s > STALL_MAX_S:
        stand.note("stuck-LSO", f"readers stood still for {stalled_s:.1f} s")
    return 1


# -- late requests ----------------------------------------------------------------------------


def late_offsets(stand: Stand) -> int:
    """TxnOffsetCommit of n arrives inside n+1, behind that one's own; then a crash.

    Accepted, it moves the progress back: the next start reads n+1 again.
    """
    _await_unmarked(stand)
    late = stand.arm("TxnOffsetCommit", "hold")
    late.wait_hit()
    end = stand.arm("EndTxn", "hold", nth=2)
    stand.proxy.cut(stand.client())  # the client sends it again by itself, and is content
    end.wait_hit()
    late.release()
    _tell(stand, late.wait_answered())
    stand.members["w-0"].kill()
    end.release()
    end.wait_answered()
    return _back(stand)


def late_commit(stand: Stand) -> int:
    """EndTxn of n arrives inside n+1, whose offsets are not there yet; then a crash.

    Accepted, it commits the outputs of n+1 alone: the next start writes them again.
    """
    _await_unmarked(stand)
    _into_the_next(stand, stand.arm("EndTxn", "hold", commits=True))
    stand.members["w-0"].kill()
    return _back(stand)


def late_abort(stand: Stand) -> int:
    """EndTxn of n, an abort, arrives inside n+1, whose offsets are not there yet.

    Accepted, it takes the outputs of n+1 away; its offsets are committed without them.
    """
    _await_unmarked(stand)
    stand.arm("TxnOffsetCommit", "refuse", code=ILLEGAL_GENERATION)
    _into_the_next(stand, stand.arm("EndTxn", "hold", commits=False))
    stand.proxy.clear()
    stand.await_progress()
    return 1


def _await_unmarked(stand: Stand) -> None:
    """Wait until no partition needs a mark of a process at work (processing/crash_markers.py).

    Before, the next transaction after a failure is the mark alone: it has no outputs.
    """
    topics = stand.topics
    stand.await_(
        lambda: unmarked(topics.bootstrap, topics.app, topics.source), "offsets without a mark"
    )


def _into_the_next(stand: Stand, late: Rule) -> None:
    """Deliver a held EndTxn when the outputs of the next transaction are there, not its offsets."""
    late.wait_hit()
    # Nothing may be held back on the way of the outputs, so the client is only told to ask again.
    busy = stand.arm("AddOffsetsToTxn", "refuse", times=ALWAYS, code=CONCURRENT_TRANSACTIONS)
    stand.proxy.cut(stand.client())  # the client sends EndTxn again by itself, and is content
    busy.wait_hit()
    _await_open(stand, busy)
    late.release()
    _tell(stand, late.wait_answered())


def _await_open(stand: Stand, busy: Rule) -> None:
    """Wait until all outputs of a transaction are written, and none is visible yet.

    That is so when nothing was added while the client asked again and again to add its offsets: a
    slow process sends neither.
    """
    last, hits = -1, 0

    def settled() -> bool:
        nonlocal last, hits
        written = stand.written()
        if written != last:
            last, hits = written, busy.hits
        return busy.hits >= hits + 3 and written > stand.visible()

    assert reaches(settled, PATIENCE_S), "no transaction is open"


def _tell(stand: Stand, code: int | None) -> None:
    stand.words.append(f"the late request was delivered and answered with {code}")


def _back(stand: Stand) -> int:
    stand.proxy.clear()
    stand.members["w-0"].start()
    stand.await_progress()
    return 1
