"""``python -m tests.kit.killed_spool FOLDER KILLS [SEED]``: a spool whose process is killed.

A child appends numbers and writes each to a pipe once it is acknowledged; it is killed at a random
moment, also within a checkpoint, a deletion or an open. Then what the folder holds is compared:
all that the pipe says, in order, each once, and at most the call that was under way in addition.
"""

import os
import signal
import sys
import time
from random import Random
from struct import Struct

from hapax.spool.folder import Folder
from hapax.spool.spool import SpoolStore

NUMBER = Struct("<Q")
CALL, BOUND = 3, 1 << 20


def record(number: int) -> bytes:
    return NUMBER.pack(number) + bytes(number % 700)


def opened(path: str) -> SpoolStore:
    return SpoolStore(Folder(path), "app", disk_max_bytes=BOUND)


def append(path: str, pipe: int) -> None:
    """Append until the process is killed, and delete now and then."""
    spool = opened(path)
    while True:
        numbers = range(spool.next, spool.next + CALL)
        spool.append(list(map(record, numbers)), b"%d" % numbers[-1])
        os.write(pipe, NUMBER.pack(numbers[-1]))
        spool.checkpoint()
        if numbers[-1] % 7 == 0:
            spool.delete_below(numbers[-1] - 20)


def judge(path: str, acknowledged: int) -> int:
    """Return the last number that is there; raise AssertionError when one is not what it was."""
    spool = opened(path)
    last = spool.next - 1
    assert acknowledged <= last <= acknowledged + CALL, (acknowledged, last)
    assert int(spool.meta.position or b"0") == last
    content = b"".join(row.content for row in spool.read(spool.first, 1 << 30, 1 << 30))
    assert content == b"".join(map(record, range(spool.first, spool.next)))
    spool.close()
    return last


def main(path: str, kills: int, seed: int = 1) -> None:
    chance, last, appended = Random(seed), 0, 0
    for _ in range(kills):
        read, write = os.pipe()
        child = os.fork()
        if not child:
            append(path, write)
        os.close(write)
        said = [NUMBER.unpack(os.read(read, NUMBER.size))[0] for _ in range(chance.randrange(6))]
        time.sleep(chance.random() * 0.01)  # the moment of the kill is what is drawn
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(read, "rb") as pipe:
            said += [number for (number,) in NUMBER.iter_unpack(pipe.read())]
        appended += len(said)
        last = judge(path, said[-1] if said else last)
    assert appended > kills, appended
    print(f"{kills} kills, {last:,} records, none lost")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
