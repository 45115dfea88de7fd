"""Business code of campaigns and fault tests."""

import ctypes
import os
import time
from collections.abc import Iterator

from hapax import Output, Record
from tests.fault import rules
from tests.fault.controls import gate

_WHO = f"{os.environ.get('HAPAX_INSTANCE', '')}/{os.getpid()}".encode()


def split(record: Record) -> Iterator[Output]:
    """Yield what the rules ask for; outputs say which process made them, but for plain events."""
    gate.pass_through(record.value or b"")
    second = rules.second_topic(record.topic)
    content = rules.decode(record.value or b"")
    who = () if content is not None and rules.is_plain(content.number) else (("who", _WHO),)
    for way, value in rules.results(record.value or b""):
        yield Output(value, topic=second if way else None, headers=who)


def sleep(record: Record) -> Output:
    """Copy the record, after the seconds in its header ``sleep-s``."""
    time.sleep(float(dict(record.headers).get("sleep-s") or b"0"))
    return Output(record.value)


def hold(record: Record) -> Output:
    """Do the same in C code that keeps the interpreter lock: no other thread of Python runs.

    The watchdog does not count meanwhile; librdkafka's threads go on.
    """
    seconds = float(dict(record.headers).get("sleep-s") or b"0")
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
    return Output(record.value)
