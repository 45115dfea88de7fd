"""What a reader of committed records may see while transactions are open, in memory and real."""

import pytest

from hapax.core.ports import Source
from tests.kit.rulebook import Rulebook, places, share, until


class Reading:
    """What a source has brought so far."""

    def __init__(self, world: Rulebook, source: Source) -> None:
        self._world, self._source = world, source
        self.values: list[bytes | None] = []

    def turn(self) -> int:
        """Take once; return how many have come so far."""
        self.values += [record.value for record in self._source.take(100, 0.05).records]
        return len(self.values)

    def take(self, *expected: bytes) -> None:
        """Take until so many have come; they must be these."""
        until(self._world, lambda: self.turn() >= len(expected))
        assert self.values == list(expected)

    def linger(self) -> None:
        """Take a while longer; whatever may come has come."""
        for _ in range(5):
            self.turn()


def reader(world: Rulebook) -> tuple[Source, Reading]:
    source = world.member("r")
    share(world, source)
    return source, Reading(world, source)


@pytest.mark.parametrize("commit", [True, False])
def test_a_reader_waits_before_an_open_transaction_also_for_plain_records_behind_it(
    rulebook, *, commit
):
    world = rulebook()
    source, reading = reader(world)
    world.write(b"before")
    upstream = world.upstream(b"t1", b"t2")
    world.write(b"behind")
    world.write(b"elsewhere", partition=1)
    until(world, lambda: reading.turn() == 2)
    reading.linger()
    assert sorted(filter(None, reading.values)) == [b"before", b"elsewhere"]
    assert source.last_stable_offsets(places(world)) == dict.fromkeys(places(world), 1)
    assert source.ends() == dict(zip(places(world), (4, 1), strict=True))
    upstream.end(commit=commit)
    reading.values.clear()
    reading.take(*([b"t1", b"t2"] if commit else []), b"behind")
    assert source.last_stable_offsets(places(world))[places(world)[0]] == 5  # and a marker
    assert (source.ends() or {})[places(world)[0]] == 5


def test_what_is_committed_behind_an_open_transaction_waits_for_its_end(rulebook):
    world = rulebook()
    source, reading = reader(world)
    first, second = world.upstream(b"f"), world.upstream(b"s")
    second.end(commit=True)
    reading.linger()
    stable = source.last_stable_offsets(places(world))
    assert (reading.values, stable[places(world)[0]]) == ([], 0)
    first.end(commit=False)
    reading.take(b"s")


def test_the_older_of_two_open_transactions_frees_what_lies_before_the_newer(rulebook):
    world = rulebook()
    source, reading = reader(world)
    first, second = world.upstream(b"f"), world.upstream(b"s")
    reading.linger()
    assert reading.values == []
    first.end(commit=True)
    reading.take(b"f")
    reading.linger()
    stable = source.last_stable_offsets(places(world))
    assert (reading.values, stable[places(world)[0]]) == ([b"f"], 1)
    second.end(commit=True)
    reading.take(b"f", b"s")


def test_a_pause_outlives_the_partition_until_it_is_resumed(rulebook):
    world = rulebook()
    source, reading = reader(world)
    source.pause("operator")
    other = world.member("o")
    share(world, source, other)
    source.pause("operator")  # adds to what is paused; what is away stays so, too
    world.leave(other)
    share(world, source)
    world.write(b"0")
    world.write(b"1", partition=1)
    reading.linger()
    assert reading.values == []
    source.resume("operator")
    until(world, lambda: reading.turn() == 2)
    assert sorted(filter(None, reading.values)) == [b"0", b"1"]
