"""Records of the retry topic at the Source port: held until their time, in memory and real."""

import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack, closing, nullcontext

import pytest

from hapax.core.errors import BatchAbortedError
from hapax.core.headers import Retried
from hapax.core.records import Headers, Progress, Record
from hapax.kafka.consume.retry_source import KafkaRetrySource
from hapax.kafka.properties import consumer_properties
from hapax.processing.retry_later import LEVELS
from hapax.sandbox import Sandbox, SandboxTopic
from hapax.testing.broker import MemoryBroker
from hapax.testing.source import MemorySource
from tests.kit.doubles import Ticking
from tests.kit.parts import Quiet, settings_of
from tests.kit.topics import Given, produce

LATE_S = 5.0
"""So much later than its time a record may come here: other tests have the machine as well."""
RECORDS_S = 60.0


class MemoryRetry:
    """All in this process."""

    def __init__(self) -> None:
        self.clock = Ticking()
        self.retry = "again"
        self.broker = MemoryBroker(
            {"in": 1, "again": LEVELS, "out": 1}, inputs=["in", "again"], clock=self.clock
        )

    def now_s(self) -> float:
        return self.clock.now_s

    def write(self, topic: str, given: Given) -> None:
        self.broker.write(
            topic, given.value, partition=max(0, given.partition), headers=given.headers
        )

    def member(self, name: str) -> MemorySource:
        source = MemorySource(self.broker, name, wait=self.clock.wait)
        source.held = self._held
        return source

    def _held(self, record: Record) -> bool:
        retried = Retried.decode(dict(record.headers))
        return retried is not None and retried.until > self.now_s() * 1000


class KafkaRetry:
    """Our own source on the sandbox's broker."""

    def __init__(self, sandbox: Sandbox, exits: ExitStack) -> None:
        self.bootstrap = sandbox.bootstrap_servers
        self.app = f"again-{uuid.uuid4().hex[:12]}"
        self.retry = f"{self.app}-retry"
        self._exits = exits
        sandbox.create_topics(SandboxTopic(f"{self.app}-in"), SandboxTopic(self.retry, LEVELS))

    def now_s(self) -> float:
        return time.time()

    def write(self, topic: str, given: Given) -> None:
        produce(self.bootstrap, f"{self.app}-in" if topic == "in" else topic, given)

    def member(self, name: str) -> KafkaRetrySource:
        more = {"HAPAX_GROUP__MEMBERSHIP": "dynamic", "HAPAX_INSTANCE": name}
        settings = settings_of(self.bootstrap, f"{self.app}-in", "out", self.app, **more)
        source = KafkaRetrySource(
            consumer_properties(settings),
            settings.input.topics,
            retry=self.retry,
            now_ms=lambda: int(time.time() * 1000),
            start="earliest",
            logger=Quiet(),
            clock=time,
            watch=lambda _call: nullcontext(),
        )
        source.subscribe()
        self._exits.enter_context(closing(source))
        return source


World = MemoryRetry | KafkaRetry
Member = MemorySource | KafkaRetrySource


@pytest.fixture(params=["memory", "kafka"])
def world(request):
    if request.param == "memory":
        yield MemoryRetry()
        return
    with ExitStack() as exits:
        yield KafkaRetry(request.getfixturevalue("sandbox"), exits)


def waiting(world: World, value: bytes, wait_s: float, level: int = 0) -> float:
    """Write a record that waits so long from now; return until when."""
    until = int((world.now_s() + wait_s) * 1000)
    retried = Retried(of="in/0/0", timestamp=1, attempt=1, calls=1, move=1, until=until, due=until)
    headers: Headers = tuple(retried.encode())
    world.write(world.retry, Given(value, None, headers, level))
    return until / 1000


def taken(
    world: World, source: Member, count: int, until: Callable[[], bool] = bool
) -> tuple[list[tuple[bytes, float]], Progress]:
    """Return values and when they came, and the progress with them."""
    found: list[tuple[bytes, float]] = []
    progress: Progress = {}
    deadline_s = time.monotonic() + RECORDS_S
    while len(found) < count and not until():
        assert time.monotonic() < deadline_s, found
        try:
            batch = source.take(10, 0.05)
        except BatchAbortedError:  # a topic so new that its leader does not know it, for instance
            source.rewind(source.processed())
            continue
        found += [(record.value or b"", world.now_s()) for record in batch.records]
        progress |= batch.next
    return found, progress


def test_a_record_is_held_until_its_time_in_the_order_of_its_level_and_alone(world):
    source = world.member("w")
    world.write("in", Given(b"first"))
    taken(world, source, 1)  # it is a member now
    late = waiting(world, b"late", 4.0, level=3)
    waiting(world, b"after it", 0.0, level=3)
    soon = waiting(world, b"soon", 0.2, level=1)
    world.write("in", Given(b"input"))
    found, progress = taken(world, source, 2)
    assert [value for value, _ in found] in ([b"input", b"soon"], [b"soon", b"input"])
    assert soon <= dict(found)[b"soon"] < late  # it did not wait for the other level
    assert (world.retry, 3) not in progress  # nor does the end of the level pass it
    found, progress = taken(world, source, 2)
    assert [value for value, _ in found] == [b"late", b"after it"]
    assert late <= found[0][1] < late + LATE_S
    assert progress[(world.retry, 3)] == 2


def test_what_was_handed_out_and_is_rewound_comes_again_and_what_is_held_is_not_lost(world):
    source = world.member("w")
    world.write("in", Given(b"first"))
    taken(world, source, 1)  # it is a member now
    waiting(world, b"ripe", 0.0, level=2)
    waiting(world, b"held", 4.0, level=2)
    # Where the broker takes 4 s to answer, both are due.
    assert [value for value, _ in taken(world, source, 1)[0]] in ([b"ripe"], [b"ripe", b"held"])
    source.rewind({(world.retry, 2): 0})
    assert [value for value, _ in taken(world, source, 2)[0]] == [b"ripe", b"held"]


def test_what_one_member_holds_is_handed_out_by_the_next_one_when_it_leaves(world):
    source = world.member("w")
    waiting(world, b"ripe", 0.0, level=4)
    assert [value for value, _ in taken(world, source, 1)[0]] == [b"ripe"]
    until = waiting(world, b"held", 1.5, level=4)
    source.take(10, 0.5)
    source.close()
    found, _progress = taken(world, world.member("v"), 2)
    assert [value for value, _ in found] == [b"ripe", b"held"]  # nothing was committed
    assert found[1][1] >= until
