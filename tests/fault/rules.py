"""What a record of the fault suite says, and what must come of it.

Standard library only: the peers beside which we are measured run it in environments of their own.
"""

from typing import Any, NamedTuple
from zlib import crc32

MAIN, SECOND = 0, 1
"""Which output topic: ``APP-out`` or ``APP-out-2``, where the input is ``APP-in``."""
POISON_EVERY, POISON = 1000, 7
PERIOD, PLAIN_FROM = 20_000, 10_000
"""After so many numbers all repeats; of these the later ones are plain: one output each, without a
header of its own and never poison. Batches of them take the native record path as a whole."""
_WAYS = {0: (), 1: (MAIN, SECOND), 2: (MAIN, SECOND), 3: (MAIN, SECOND, MAIN)}


class Content(NamedTuple):
    """The fields of an input value.

    number  dense and unique for each event of a run; negative in transactions that are aborted
    key     number of the key, kseq: gapless for each key
    t_ms    when it was written, by the wall clock
    """

    number: int
    key: int
    kseq: int
    t_ms: int


class PoisonError(ValueError):
    """What business code raises at a record that nobody can process."""


def encode(content: Content, size: int = 0) -> bytes:
    """Return the value, padded with spaces to ``size`` bytes."""
    head = b"%d %d %d %d" % content
    return (b"%s %08x" % (head, crc32(head))).ljust(size)


def decode(value: bytes) -> Content | None:
    head, _space, check = value.rstrip().rpartition(b" ")
    if check != b"%08x" % crc32(head):
        return None
    number, key, kseq, t_ms = map(int, head.split(b" "))
    return Content(number, key, kseq, t_ms)


def is_plain(number: Any) -> Any:
    """Return whether this event is one of the plain ones; for a number, or an array of them."""
    return number % PERIOD >= PLAIN_FROM


def is_poison(number: Any) -> Any:
    """Return whether business code refuses this event, after all its outputs are made."""
    return (number % POISON_EVERY == POISON) & (number % PERIOD < PLAIN_FROM)


def ways(number: int) -> tuple[int, ...]:
    """Return for each output, in order, which topic it goes to. A dead letter stands alone."""
    return (MAIN,) if is_plain(number) else _WAYS.get(number % 10, (MAIN,))


def output(value: bytes, content: Content, part: int) -> bytes:
    """Return the value of output ``part`` (from 0): number, part, time, check of the input."""
    return b"%d %d %d %08x" % (content.number, part, content.t_ms, crc32(value))


def results(value: bytes) -> list[tuple[int, bytes]]:
    """Return (which topic, value) of every output in order; raise PoisonError as told."""
    content = decode(value)
    if content is None:
        raise PoisonError("the value is damaged")
    made = [(way, output(value, content, at)) for at, way in enumerate(ways(content.number))]
    if is_poison(content.number):
        raise PoisonError(f"event {content.number} is poison")
    return made


def second_topic(source: str) -> str:
    """Return the topic of the outputs that do not go to the main one, from that of the input."""
    return source.removesuffix("-in") + "-out-2"
