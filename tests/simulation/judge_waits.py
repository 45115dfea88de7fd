"""Records that wait for a later try, held against the promise at every commit."""

from collections.abc import Callable, Iterable

from hapax.core.headers import Retried
from hapax.core.records import Coordinates, Record
from tests.simulation.business import RETRY


class Waits:
    """Who waits, and where. One record of the retry topic stands for each that waits.

    waiting  by original: the record that stands for it
    known    all that ever waited
    """

    def __init__(self) -> None:
        self.waiting: dict[Coordinates, Coordinates] = {}
        self.known: set[Coordinates] = set()

    def judge(
        self,
        written: Iterable[Record],
        passed: Iterable[Record],
        note: Callable[[str, str], None],
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
