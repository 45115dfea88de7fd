"""Holds every commit, and the end, against the promise; classes as in tests/fault/results.py."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from hapax.core.headers import Retried
from hapax.core.records import Coordinates, Progress, Record
from hapax.testing.broker import MemoryBroker
from tests.simulation.business import DEAD, INPUTS, OUT, RETRY, Effect, event_of, expected
from tests.simulation.keyed import KEPT_TOPIC, KeptJudge

# -- Records that wait for a later try, held against the promise at every commit -----------


class Waits:
    """Who waits, and where. One record of the retry topic stands for each that waits.

    waiting  by original: the record that stands for it
    known    all that ever waited
    """

    def __init__(self) -> None:
        self.waiting: dict[Coordinates, Coordinates] = {}
        self.known: set[Coordinates] = set()

    def judge(
        self, written: Iterable[Record], passed: Iterable[Record], note: Callable[[str, str], None]
    ) -> list[Coordinates]:
        """Judge one transaction; return the originals that do not wait any more.

        ``passed``: what its offsets have gone beyond.
        """
        ended = []
        for record in passed:
            if record.topic == RETRY:
                of = _original(record)
                if self.waiting.get(of) != record.coordinates:
                    note("duplicate", f"{record.coordinates} stands for {of} a second time")
                    continue
                del self.waiting[of]
                ended.append(of)
        for record in written:
            of = _original(record)
            if of in self.waiting:
                note("duplicate", f"{of} waits at {self.waiting[of]} and {record.coordinates}")
            self.waiting[of] = record.coordinates
            self.known.add(of)
        return [of for of in ended if of not in self.waiting]


def _original(record: Record) -> Coordinates:
    retried = Retried.decode(dict(record.headers))
    assert retried is not None, record
    return Coordinates.parse(retried.of)


# -- The judge -----------------------------------------------------------------------------


class Judge:
    """Watches a broker. ``found``: violations as (class, text), in order of their discovery."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.kept: KeptJudge | None = None
        self.found: list[tuple[str, str]] = []
        self.commits = 0
        self._broker = broker
        self._committed: Progress = {}
        self._effects: dict[Coordinates, list[Effect]] = {}
        self._last: dict[tuple[str, int, str, int], int] = {}
        self._waits = Waits()

    def note(self, kind: str, text: str) -> None:
        self.found.append((kind, text))

    # -- at every commit ------------------------------------------------------------------

    def watch(self, visible: Sequence[Record], offsets: Progress) -> None:
        """Judge one committed transaction of the pipeline."""
        self.commits += 1
        before = dict(self._committed)
        for where, offset in offsets.items():
            if offset < before.get(where, 0):
                self.note("offset-effect", f"{where} moved back: {before[where]} to {offset}")
            self._committed[where] = offset
        passed = [
            Coordinates(*where, at)
            for where, offset in offsets.items()
            for at in range(before.get(where, 0), offset)
        ]
        waiting = [record for record in visible if record.topic == RETRY]
        ended = self._waits.judge(waiting, filter(None, map(self._input, passed)), self.note)
        finals = [record for record in visible if record.topic not in {RETRY, KEPT_TOPIC}]
        for source, effects in self._sources(finals).items():
            self._judge_effects(source, effects)
        for done in [*(each for each in passed if each.topic != RETRY), *ended]:
            self._judge_done(done)
        if self.kept is not None:
            there = [record for record in map(self._input, passed) if record is not None]
            changes = [record for record in visible if record.topic == KEPT_TOPIC]
            self.kept.judge(there, self._effects, changes, offsets)

    def _sources(self, visible: Sequence[Record]) -> Mapping[Coordinates, list[Effect]]:
        found: dict[Coordinates, list[Effect]] = defaultdict(list)
        for record in visible:
            text = (dict(record.headers).get("hapax-source") or b"").decode()
            source = Coordinates.parse(text)
            found[source].append((record.topic, record.value or b""))
            if source in self._waits.known:  # others went on while it waited
                continue
            place = (record.topic, record.partition, source.topic, source.partition)
            if self._last.get(place, -1) > source.offset:
                self.note("order", f"{source} behind {self._last[place]} in {record.topic}")
            self._last[place] = source.offset
        return found

    def _judge_effects(self, source: Coordinates, effects: list[Effect]) -> None:
        committed = self._committed.get((source.topic, source.partition), 0)
        if source.offset >= committed:
            self.note("offset-effect", f"effect of {source}, but {committed} is committed")
        if source in self._effects:
            self.note("duplicate", f"{source} has effects in two transactions")
            return
        if source in self._waits.waiting:
            self.note("duplicate", f"{source} has effects and waits for a later try")
        self._effects[source] = effects
        record = self._input(source)
        if record is None:
            self.note("phantom", f"effect of {source}, which no reader sees")
            return
        wanted = expected(record.value or b"")
        if self.kept is not None:  # which judges what it adds to them
            effects = [(topic, value.partition(b"=")[0]) for topic, value in effects]
        if effects != wanted:
            torn = len(effects) < len(wanted)
            self.note("torn-txn" if torn else "transform", f"{source}: {effects}, not {wanted}")

    def _judge_done(self, source: Coordinates) -> None:
        """Judge a record below the committed offset, unless a twin may stand for it."""
        record = self._input(source)
        if record is None or source in self._effects or not expected(record.value or b""):
            return
        if source in self._waits.waiting:
            return
        event = event_of(record.value or b"")
        if self._twins[event] <= 1:
            self.note("lost-write", f"{source} {record.value!r} is done without effect")

    def _input(self, source: Coordinates) -> Record | None:
        log = self._broker.logs.get((source.topic, source.partition))
        return None if log is None else log.at(source.offset)

    # -- before and after -----------------------------------------------------------------

    def expect(self, events: Mapping[bytes, int]) -> None:
        """Be told how many records there will be of each event, aborted ones included."""
        self._twins = Counter(events)

    def finish(self, *, claims: bool, emptied: int) -> None:
        """Judge what is there at the end, read back from zero."""
        self._judge_state()
        self._judge_read_back()
        self._judge_events(claims=claims, emptied=emptied)

    def _judge_state(self) -> None:
        for where, log in self._broker.logs.items():
            if log.stable_end < log.end:
                self.note("stuck-LSO", f"{where}: {log.stable_end} of {log.end}")
        self._broker.expire()
        producers = self._broker._producers.items()
        if names := [name for name, one in producers if one.state == "ongoing"]:
            self.note("leak", f"open transactions of {names}")
        for where, end in self._broker.ends().items():
            done = self._broker.committed.get(where, 0)
            # A process that was away while the others left may write to the retry topic, and
            # abort: no process is left that would pass over that. A record must not be left.
            open_end = done < end if where[0] != RETRY else self._broker.fetch(where, done, 1)
            if open_end:
                self.note("hang", f"{where}: {done} of {end} is committed")

    def _judge_read_back(self) -> None:
        """The reader from zero must find what was seen live."""
        records = [record for topic in (OUT, DEAD) for record in self._broker.records(topic)]
        found: dict[str, list[Effect]] = defaultdict(list)
        for record in records:
            source = (dict(record.headers).get("hapax-source") or b"").decode()
            found[source].append((record.topic, record.value or b""))
        seen = {str(source): sorted(effects) for source, effects in self._effects.items()}
        if not self.found and seen != {source: sorted(each) for source, each in found.items()}:
            self.note("G1a", "the reader from zero and the live one disagree")

    def _judge_events(self, *, claims: bool, emptied: int) -> None:
        groups: dict[bytes, list[Record]] = defaultdict(list)
        for record in [one for topic in INPUTS for one in self._broker.records(topic)]:
            groups[event_of(record.value or b"")].append(record)
        for event, twins in groups.items():
            if event.startswith(b"filter"):
                continue
            done = [twin for twin in twins if twin.coordinates in self._effects]
            if not claims and len(done) < len(twins):
                self.note("lost-write", f"{event!r}: {len(done)} of {len(twins)} have an effect")
            elif not done:
                kind = "dedup-loss" if len(twins) > 1 else "lost-write"
                self.note(kind, f"no record of {event!r} has an effect")
            elif claims and len(done) - self._unchecked(done) > 1 + emptied:
                self.note("repeated", f"{event!r} had {len(done)} effects")

    def _unchecked(self, done: list[Record]) -> int:
        """Return how many effects are marked as made without claims."""
        marked = set()
        for topic in (OUT, DEAD):
            for record in self._broker.records(topic):
                headers = dict(record.headers)
                if "hapax-unchecked" in headers:
                    marked.add((headers.get("hapax-source") or b"").decode())
        return sum(1 for record in done if str(record.coordinates) in marked)
