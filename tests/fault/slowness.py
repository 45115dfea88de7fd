"""Business code that takes as long as the record says."""

import ctypes
import time

from hapax import Output, Record


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
