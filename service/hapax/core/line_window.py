"""The window with HAPAX_RETRY__ORDER=key: of each key only the first that waits is called.

What is inside is of two kinds:

- of the retry topic: the first of its line (retry_line.py), one at a time. It is called at once,
  and leaves when it has finished, whatever is before it in its partition: the offset to commit is
  that of the first record that waits, not that of a prefix.
- of the inputs: as in every window. A record with a key has its turn when no record of its line
  waits and the call before it has ended. When one waits, or has asked to wait, those after it wait
  as well, without a call; only a record whose line holds nothing but one that is being called stays
  until that one's effect is committed.

So what leaves in input order has been called after all that is before it in its line had ended.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from hapax.core.calls import PENDING
from hapax.core.errors import BatchAbortedError
from hapax.core.retry_later import STAY, Later, Put, put_behind
from hapax.core.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence

    from hapax.core.begun import Begun
    from hapax.core.calls import Call
    from hapax.core.ports import Batch
    from hapax.core.records import Progress, Record, TopicPartition
    from hapax.core.retry_line import RetryLine


class Chain:
    """The records of one key of an input partition that are inside, in input order.

    known    so many of the first have an outcome; the next one is called, or has its turn next
    waiting  those among them that wait when they leave
    turn     the call whose turn it is
    """

    __slots__ = ("calls", "index", "known", "turn", "waiting")

    def __init__(self, index: int) -> None:
        self.index = index
        self.calls: deque[Call] = deque()
        self.known = 0
        self.waiting: set[Call] = set()
        self.turn: Call | None = None

    @property
    def settled(self) -> bool:
        """Whether nothing is to be decided before another record enters."""
        last = self.calls[-1]
        ahead = len(self.calls) - self.known
        return not ahead or (ahead == 1 and (last.done or last.started or last is self.turn))

    def leave(self, call: Call) -> None:
        """Take a call out: the first one, as a rule."""
        at = self.calls.index(call)
        del self.calls[at]
        self.known -= at < self.known
        self.waiting.discard(call)


class LineWindow(Window):
    """Calls by partition and by key. ``line``: what waits; it is that of the source."""

    ROOM_MIN = 2
    """Half of what is taken is for what waits and is due (line_source.py): with one place at a time
    the inputs would have them all under a backlog."""

    def __init__(self, line: RetryLine, *, now_ms: Callable[[], int]) -> None:
        super().__init__()
        self._line = line
        self._retry = line.topic.name
        self._now_ms = now_ms
        self._chains: dict[Hashable, Chain] = {}
        self._undecided: dict[Hashable, Chain] = {}
        self._again: dict[Call, None] = {}
        """Of the retry topic, in the order in which they came."""
        self._leaving: list[Call] = []
        line.firsts_only = True

    def depth(self, where: TopicPartition) -> int:
        """Return how many records of a partition are inside."""
        if where[0] != self._retry:
            return super().depth(where)
        return sum(call.record.partition == where[1] for call in self._again)

    def turns(self) -> list[Call]:
        """Return calls inside whose turn has come since; those that cannot have one wait.

        Raises BatchAbortedError when what waits of a partition is not known.
        """
        found: list[Call] = []
        for line, chain in list(self._undecided.items()):
            call = self._turn(line, chain)
            if call is not None:
                found.append(call)
            if chain.settled:
                del self._undecided[line]
        return found

    def ready(self, records_max: int) -> tuple[Batch, Begun] | None:
        """Return what has finished: of the retry topic all, of the inputs the prefixes."""
        found = super().ready(records_max)
        if found is None:
            return None
        batch, _begun = found
        leaving = set(map(id, batch.records))
        self._leaving = [call for call in self._again if id(call.record) in leaving]
        for where in batch.first:
            if where[0] == self._retry:  # the offset moves from the first that waits to another
                floor = self._line.floor(where[1])
                batch.first[where] = batch.next[where] if floor is None else floor
        return found

    def loose_ends(self) -> Progress:
        """Return the ends of partitions without a record inside; nothing passes what waits."""
        found: Progress = {}
        for where, end in super().loose_ends().items():
            floor = self._line.floor(where[1]) if where[0] == self._retry else end
            if floor is not None:
                found[where] = floor
        return found

    def settle(self, progress: Mapping[TopicPartition, int]) -> None:
        """Let go of what was committed."""
        for call in self._leaving:
            del self._again[call]
            self._leave(call)
        self._leaving = []
        super().settle(progress)

    def put_back(self) -> Progress:
        """Take everything out; return per partition where to read again."""
        first = super().put_back()
        for call in self._again:
            where = (self._retry, call.record.partition)
            self._kept.setdefault(where, {})[call.record.offset] = call
            floor = self._line.floor(where[1])
            if floor is not None:
                first[where] = floor
        self._leaving = []
        for known in (self._again, self._chains, self._undecided):
            known.clear()
        return first

    def siblings(self, _partitions: Collection[TopicPartition]) -> Progress:
        """Return where to read other partitions of the same numbers, of which records are inside.

        What is inside of them was decided by what waited there: it is not valid any more.
        """
        moved = set(_partitions)
        numbers = {where[1] for where in moved}
        found = {where: at for where, at in self.firsts().items() if where[1] in numbers}
        for number in {call.record.partition for call in self._again} & numbers:
            floor = self._line.floor(number)
            if floor is not None:
                found[(self._retry, number)] = floor
        return {where: at for where, at in found.items() if where not in moved}

    def forget(self, partitions: Collection[TopicPartition]) -> list[Call]:
        """Drop partitions that left, and others of their numbers; return their calls."""
        numbers = {where[1] for where in partitions}
        inside = [*self._lines, *self._kept, *self._ends, *partitions]
        gone = super().forget({where for where in inside if where[1] in numbers})
        for call in [call for call in self._again if call.record.partition in numbers]:
            del self._again[call]
            self._leave(call)
            gone.append(call)
        return gone

    def cut(self, begun: Collection[Call]) -> None:
        """Leave out what is neither finished nor among ``begun``, and all after it."""
        super().cut(begun)
        for call in [call for call in self._again if not call.done and call not in begun]:
            call.dropped = True
            del self._again[call]
            self._leave(call)

    def _key(self, record: Record) -> Hashable:
        return None if record.key is None else self._line.spot(record)[1]

    def _enter(self, where: TopicPartition, call: Call) -> bool:
        made = call.started or call.result is not PENDING
        if where[0] == self._retry:
            self._again[call] = None
            if call.fate is STAY and made:  # the clock went back
                call.fate = PENDING
        else:
            super()._enter(where, call)
            if call.key is not None:
                chain = self._chains.get(call.key)
                if chain is None:
                    chain = self._chains[call.key] = Chain(where[1])
                chain.calls.append(call)
                self._undecided[call.key] = chain
                return False
        return not made and not call.done

    def _prefixes(self) -> Iterator[tuple[TopicPartition, Sequence[Call]]]:
        for call in self._again:
            yield (self._retry, call.record.partition), (call,)
        yield from super()._prefixes()

    def _leave(self, call: Call) -> None:
        super()._leave(call)
        chain = self._chains.get(call.key)
        if chain is not None and call.record.topic != self._retry:
            chain.leave(call)
            if not chain.calls:
                del self._chains[call.key]
                self._undecided.pop(call.key, None)

    def _turn(self, line: Hashable, chain: Chain) -> Call | None:
        """Decide about the records of a chain, in their order; return the call to be made next."""
        while chain.known < len(chain.calls):
            call = chain.calls[chain.known]
            if not call.done:
                if call.started or call is chain.turn:
                    return None
                if not self._line.ready(chain.index):
                    raise BatchAbortedError(f"what waits of partition {chain.index} is not known")
                if not chain.waiting and self._line.last_is_out(chain.index, line):
                    return None
                if not chain.waiting and not self._line.waiting(chain.index, line):
                    chain.turn = call
                    return call
                call.fate = put_behind(call.record, self._now_ms())
            if isinstance(call.outcome, Later | Put):
                chain.waiting.add(call)
            chain.known += 1
        return None
