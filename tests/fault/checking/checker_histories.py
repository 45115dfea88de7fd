"""Random histories in which the promise was kept, as texts: what can be wrong is planted later.

They are small and made record by record, so that they share no code with the judges. For the
checker the parsers of what is read back stand between, and are tested with it; for the audit
tests/kit/histories.py makes its rows of them.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.fault import rules
from tests.fault.checking.history import DEAD_WAY
from tests.fault.checking.reading import Ends
from tests.fault.checking.reading_columns import Table
from tests.fault.feeding.ledger import Fate

RUN, SOURCE = "r-1", "in"
PARTITIONS = 3
LANES = ((DEAD_WAY, 0), (0, 0), (0, 1), (1, 0), (1, 1))
TOPICS = {DEAD_WAY: "dead", 0: "out", 1: "out-2"}
DEAD_HEADERS = {"hapax-error": b"event is poison", "hapax-attempts": b"3", "hapax-app": b"a"}
TIME_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Given:
    """One input record."""

    place: int
    offset: int
    content: rules.Content
    copy: int = 0

    @property
    def value(self) -> bytes:
        return rules.encode(self.content, 60)

    @property
    def number(self) -> int:
        return self.content.number

    @property
    def headers(self) -> dict[str, bytes]:
        return {"message-id": f"{RUN}-{self.number}".encode(), "dup": b"%d" % self.copy}

    @property
    def where(self) -> tuple[int, int]:
        return self.place, self.offset


@dataclass(frozen=True)
class Effect:
    """One output or dead letter. ``given``: the record that it comes from."""

    given: Given
    slot: int
    way: int
    value: bytes
    key: bytes
    headers: dict[str, bytes]

    @property
    def lane(self) -> tuple[int, int]:
        return self.way, 0 if self.way == DEAD_WAY else self.given.content.key % 2

    @property
    def rank(self) -> tuple[int, int]:
        return self.given.offset, self.slot


@dataclass
class World:
    """A history as texts."""

    rng: random.Random
    claims: bool = True
    inputs: list[Given] = field(default_factory=list)
    aborted: list[Given] = field(default_factory=list)
    lanes: dict[tuple[int, int], list[Effect]] = field(
        default_factory=lambda: {lane: [] for lane in LANES}
    )
    committed: list[int | None] = field(default_factory=lambda: [None] * PARTITIONS)
    ends: list[Ends] = field(default_factory=list)
    fates: list[list[Fate]] = field(default_factory=list)
    stuck: list[tuple[int, int]] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    edits: list[Callable[[Table], Table]] = field(default_factory=list)
    """What the live reader gets wrong, done to its SEEN rows."""

    def effects(self) -> list[Effect]:
        return [effect for lane in self.lanes.values() for effect in lane]

    def owners(self) -> list[Given]:
        return list({effect.given.where: effect.given for effect in self.effects()}.values())

    def done(self) -> list[Given]:
        """Return the records below the committed offsets."""
        return [one for one in self.inputs if self.below(one)]

    def below(self, given: Given) -> bool:
        return given.offset < (self.committed[given.place] or 0)

    def copies(self, given: Given) -> list[Given]:
        return [one for one in self.inputs if one.number == given.number]

    def insert(self, effect: Effect) -> None:
        """Put an effect where the order of its partition wants it."""
        lane = self.lanes[effect.lane]
        later = (
            at
            for at, one in enumerate(lane)
            if one.given.place == effect.given.place and one.rank > effect.rank
        )
        lane.insert(next(later, len(lane)), effect)

    def remove(self, given: Given) -> None:
        for lane in self.lanes.values():
            lane[:] = [one for one in lane if one.given.where != given.where]


def due(given: Given) -> list[Effect]:
    stamp = {
        **given.headers,
        "hapax-id": given.headers["message-id"],
        "hapax-source": f"{SOURCE}/{given.place}/{given.offset}".encode(),
    }
    key = b"key-%d" % given.content.key
    if rules.is_poison(given.number):
        return [Effect(given, 0, DEAD_WAY, given.value, key, stamp | DEAD_HEADERS)]
    stamp["who"] = b"w-1/4711"
    made = rules.results(given.value)
    parts = [{"hapax-part": b"%d/%d" % (at + 1, len(made))} for at in range(len(made))]
    return [
        Effect(given, at + 1, way, value, key, stamp | (parts[at] if len(made) > 1 else {}))
        for at, (way, value) in enumerate(made)
    ]


def right(seed: int, *, claims: bool = True, whole: bool = True) -> World:
    """Return a world in which all went well, and nothing is left open.

    ``whole``: everything is done; else the last records of a partition may be yet to come.
    """
    world = World(random.Random(seed), claims)
    _write(world)
    for place in range(PARTITIONS):
        last = max((one.offset for one in world.inputs if one.place == place), default=-1)
        stable = last + 1 + world.rng.randint(1, 2)  # the last transaction's marker
        world.ends.append(Ends(0, stable, stable))
        world.committed[place] = (
            stable if whole else max(0, world.rng.choice([stable, last + 1, last - 3]))
        )
    _process(world)
    return world


def _write(world: World) -> None:
    rng = world.rng
    offsets, kseqs = [0] * PARTITIONS, [0] * 9
    for number in range(rng.randint(30, 60)):
        key = rng.randrange(len(kseqs))
        fate = rng.choice([Fate.OK] * 6 + [Fate.COMMITTED] * 5 + [Fate.INFO, Fate.UNKNOWN])
        fate = rng.choice([Fate.ABORTED, Fate.UNKNOWN, fate, fate, fate, fate, fate])
        fates = [fate, Fate.NEVER]
        world.fates.append(fates)
        visible = fate in {Fate.OK, Fate.COMMITTED} or (fate is Fate.INFO and rng.random() < 0.5)
        content = rules.Content(number, key, kseqs[key], TIME_MS + number)
        kseqs[key] += 1
        place = key % PARTITIONS
        for copy in range(2 if visible and rng.random() < 0.25 else 1):
            if copy and rng.random() < 0.5:
                place = rng.randrange(PARTITIONS)
            offsets[place] += rng.choice([1, 1, 2, 3])  # control records
            given = Given(place, offsets[place], content, copy)
            fates[copy] = fate
            (world.inputs if visible else world.aborted).append(given)
        if rng.random() < 0.1:
            offsets[place] += 1
            content = rules.Content(-1 - number, key, kseqs[key], TIME_MS)
            world.aborted.append(Given(place, offsets[place], content))


def _process(world: World) -> None:
    """Take partitions in random turns; with claims, the first copy that is taken has the effect."""
    rng, owned = world.rng, set[int]()
    queues = [
        sorted((one for one in world.done() if one.place == place), key=lambda one: one.offset)
        for place in range(PARTITIONS)
    ]
    while queue := rng.choice([queue for queue in queues if queue] or [[]]):
        given = queue.pop(0)
        if world.claims and given.number in owned:
            continue
        owned.add(given.number)
        for effect in due(given):
            world.lanes[effect.lane].append(effect)
