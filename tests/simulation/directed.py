"""Schedules that chance does not find: each family is one story, told for many moments.

A family is a sweep over step numbers and delays, so that it still meets its moment when a process
makes a step more or less than it did when the family was written.
"""

from collections.abc import Iterator

from tests.simulation.chance import Strike
from tests.simulation.options import Item, Options
from tests.simulation.play import Schedule

COMMITTED_AT = 41
"""Step at which the process of ``stopped_in_doubt`` sends its second batch's offsets."""


def stopped_in_doubt() -> Iterator[Schedule]:
    """Told to stop while a batch aborts with a doubt, and an end of another partition waits.

    The signal comes while the batch is under way, its TxnOffsetCommit is held on the way and sent
    again, the batch aborts. The leaving worker wants to commit the end of partition 1, and the
    held offsets arrive inside that transaction: they must not be committed without their outputs.
    5,500 random schedules missed it.
    """
    items = (
        Item(0.3, 0, (b"a1/0",)),
        Item(0.35, 1, (), "commit"),
        Item(0.505, 1, (), "commit"),  # so soon after the first that its end has to wait
        Item(0.55, 0, (b"b1/0",)),
    )
    options = Options(
        partitions=2, claims=False, latency_s=0.01, session_s=5.0, items=items, strikes=3
    )
    for step in range(COMMITTED_AT - 8, COMMITTED_AT + 9):
        for late_s in (0.033, 0.041, 0.049):
            strikes = {
                f"w0.1#{step - 7}": Strike("signal", 0.0, 0.0),
                f"w0.1#{step}": Strike("late", 0.0, late_s),
                f"w0.1#{step + 1}": Strike("error", 0.0, 0.1),
            }
            yield Schedule(0, options, strikes)


TAKEN_AHEAD_AT = 27
"""Step at which the process of ``came_back_in_between`` takes a batch ahead of its turn."""


def came_back_in_between() -> Iterator[Schedule]:
    """Frozen while it takes the next batch; meanwhile another member commits and leaves.

    The partition leaves and comes back within that one call, further than the batch in work began:
    the batch must not be run, nor read again from where it began. 4,000 random schedules missed
    the second.
    """
    items = (Item(0.0, 0, tuple(b"a%d/0" % number for number in range(10))),)
    options = Options(
        static=False, batch_max=2, latency_s=0.01, session_s=0.9, items=items, strikes=3
    )
    for step in range(TAKEN_AHEAD_AT - 8, TAKEN_AHEAD_AT + 9):
        for leaving in (18, 22, 42):
            for frozen_s in (2.0, 2.6):
                strikes = {
                    "w0.1#2": Strike("spare", 0.0, 0.0),
                    f"w0.1#{step}": Strike("freeze", 0.0, frozen_s),
                    f"s1.2#{leaving}": Strike("signal", 0.0, 0.0),
                }
                yield Schedule(0, options, strikes)


HELD_AT = 22
"""Step at which the process of ``held_while_away`` ends the transaction that is in doubt."""


def held_while_away() -> Iterator[Schedule]:
    """Away from the brokers while the window is full: the partition leaves and comes back unseen.

    The window holds it back for what is inside, which is of before; dropping that must release it.
    1 of 30,000 random schedules met it (seed 146626).
    """
    items = (Item(0.0007, 0, (b"4/2", b"2/2", b"two10/2")),)
    options = Options(
        partitions=3,
        workers=1,
        group="classic",
        claims=False,
        batch_max=5,
        latency_s=0.001,
        transaction_timeout_s=0.5,
        session_s=0.9,
        shutdown_s=0.1,
        items=items,
        strikes=4,
        window=1,
    )
    for step in range(HELD_AT - 4, HELD_AT + 5):
        for away_s in (1.28, 1.5):
            strikes = {
                f"w0.1#{step - 12}": Strike("brokers", 0.11, 0.51),
                f"w0.1#{step}": Strike("doubt", 0.04, 0.05),
                f"w0.1#{step + 3}": Strike("brokers", 0.3, away_s),
                f"w0.1#{step + 6}": Strike("brokers", 0.92, 1.73),
            }
            yield Schedule(146626, options, strikes)


CLAIMED_AT = 14
"""Step at which the first process of ``claimed_for_the_second`` asks for its claims."""


def claimed_for_the_second() -> Iterator[Schedule]:
    """Frozen between asking claims of two batches and giving one to the earlier of two records.

    Another member has the partition when it thaws: neither of the two may be dropped for the other.
    1 of 30,000 random schedules met it (seed 9466267).
    """
    items = (
        Item(0.0, 0, (b"2/0", b"filter9/1", b"filter5/2", b"2/1")),
        Item(0.0, 2, (b"filter12/0", b"two13/2", b"18/0", b"11/2")),
    )
    options = Options(
        partitions=3,
        workers=2,
        group="consumer",
        static=False,
        batch_max=3,
        latency_s=0.05,
        transaction_timeout_s=0.5,
        session_s=0.9,
        shutdown_s=0.1,
        items=items,
        strikes=1,
    )
    for step in range(CLAIMED_AT - 4, CLAIMED_AT + 5):
        for frozen_s in (1.3, 1.4, 1.48, 1.55):
            yield Schedule(
                9466267, options, {f"w1.2#{step}": Strike("freeze", 0.5392479923079003, frozen_s)}
            )


DIRECTED = {
    "held while away": held_while_away,
    "claimed for the second": claimed_for_the_second,
    "stopped in doubt": stopped_in_doubt,
    "came back in between": came_back_in_between,
}
