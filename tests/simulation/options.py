"""What one seed chooses before anything runs: the setting, the input, and how much goes wrong."""

from random import Random

import msgspec

FAULTS = (
    "crash",
    "freeze",
    "error",
    "doubt",
    "unanswered",
    "late",
    "claims",
    "brokers",
    "silence",
    "twin",
    "spare",
    "signal",
    "slow",
    "double join",
)
"""Kinds of faults. A seed draws a subset of them."""
KEPT_FAULTS = ("behind", "disk", "compacted")
"""Of what is kept, where business code keeps something (keyed.py); behind: a crash before a store
has what is committed."""
_OFTEN = (*FAULTS, "crash", "freeze", "silence", *["doubt", "unanswered"] * 3, "late", "error")
KINDS = (*[""] * 14, *["two"] * 4, "boom", "boom", "filter", "filter", "large", "bad")
"""What business code and brokers make of a record: see business.py."""


class Item(msgspec.Struct, frozen=True):
    """One thing that the upstream does: ``end`` is ``plain``, ``commit``, ``abort``.

    A transaction without values leaves a marker only.
    """

    at_s: float
    partition: int
    values: tuple[bytes, ...]
    end: str = "plain"
    open_s: float = 0.0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """One setting.

    group           ``classic`` or ``consumer``
    static          members are known by name and come back without a rebalance
    stable_names    a process that is started again has the name of the one before
    latency_s       longest way of a request
    faults          kinds that may strike, at most ``strikes`` times, each step with ``rate``
    later           business code asks for later tries (business.py)
    quiet_s         no fault strikes in the second half of each such time; 0: no rest
    window          calls in flight at most; 0: one record after the other
    stateful        business code keeps state, and the group is moved back at the end
    inputs          topics whose partitions of one number share that state: one or two
    """

    partitions: int = 1
    workers: int = 1
    group: str = "classic"
    static: bool = True
    stable_names: bool = True
    claims: bool = True
    pass_on_outage: bool = False
    batch_max: int = 3
    latency_s: float = 0.002
    transaction_timeout_s: float = 0.8
    scan_s: float = 0.3
    session_s: float = 1.0
    shutdown_s: float = 5.0
    faults: tuple[str, ...] = ()
    strikes: int = 0
    rate: float = 0.0
    quiet_s: float = 0.0
    items: tuple[Item, ...] = ()
    later: bool = False
    window: int = 0
    stateful: bool = False
    inputs: int = 1

    @property
    def filtered(self) -> bool:
        """Whether what leaves no output changes the state: where each effect can be told."""
        return not self.claims and self.inputs == 1


def draw(random: Random) -> Options:
    partitions = random.randrange(1, 4)
    group = random.choice(("classic", "classic", "consumer"))
    static = group == "classic" and random.random() < 0.6
    count = random.choice((0, 1, 1, 2, 2, 3, 3, 5, 8, len(FAULTS)))
    options = Options(
        partitions=partitions,
        workers=random.choice((1, 2, 2, 3)),
        group=group,
        static=static,
        stable_names=static or random.random() < 0.6,
        claims=random.random() < 0.8,
        pass_on_outage=random.random() < 0.3,
        batch_max=random.randrange(1, 6),
        latency_s=random.choice((0.0001, 0.001, 0.01, 0.05)),
        transaction_timeout_s=random.choice((0.5, 0.8)),
        scan_s=random.choice((0.1, 0.5)),
        session_s=random.choice((0.9, 1.5)),
        shutdown_s=random.choice((0.1, 5.0)),
        faults=tuple(dict.fromkeys(random.sample(_OFTEN, count))),
        strikes=random.randrange(1, 13),
        rate=random.choice((0.05, 0.2, 0.5)),
        quiet_s=random.choice((0.0, 0.6)),
        items=tuple(_backlog(random, _items(random, partitions))),
        later=random.random() < 0.25,  # the last choice: schedules of before stay what they were
        window=random.choice((0, 0, 1, 2, 8)),
    )
    if options.later or options.window or random.random() < 0.3:
        return options
    more = tuple(random.sample(KEPT_FAULTS, random.randrange(4)))
    others = options.faults if random.random() < 0.6 else ("crash",)
    batch_max = random.randrange(1, 4)
    inputs = 2 if group == "consumer" and random.random() < 0.6 else 1
    return msgspec.structs.replace(
        options, stateful=True, faults=(*others, *more), batch_max=batch_max, inputs=inputs
    )


def _backlog(random: Random, items: list[Item]) -> list[Item]:
    """Return the items; of some seeds they begin with more than one batch for each partition.

    Only behind a full batch is the next one taken ahead, and only while nothing is tried again: so
    all of these can be written.
    """
    if random.random() < 0.6:
        return items
    partitions = sorted({item.partition for item in items})
    return [
        Item(0.0, partition, tuple(_sound(random) for _ in range(random.randrange(4, 16))))
        for partition in partitions
    ] + items


def _items(random: Random, partitions: int) -> list[Item]:
    at_s, items = 0.0, []
    pause_s = random.choice((0.0, 0.02, 0.3))
    for _ in range(random.randrange(1, 13)):
        at_s += random.random() * pause_s
        partition = random.randrange(partitions)
        values = tuple(_value(random) for _ in range(random.choice((1, 1, 2, 3))))
        end = random.choice(("plain", "plain", "plain", "commit", "commit", "abort", "marker"))
        if end == "marker":
            items.append(Item(at_s, partition, (), "commit"))
        else:
            items.append(Item(at_s, partition, values, end, random.random() * 0.2))
    return items


def _sound(random: Random) -> bytes:
    kind = random.choice(("", "", "", "two", "filter"))
    return f"{kind}{random.randrange(20)}/{random.randrange(3)}".encode()


def _value(random: Random) -> bytes:
    return f"{random.choice(KINDS)}{random.randrange(12)}/{random.randrange(3)}".encode()
