"""Peak memory of a worker on a backlog of large records, and what bounds it.

    python -m bench.memory                                   # values of 100 kB, as it comes
    python -m bench.memory --bytes 1000000                   # larger values
    python -m bench.memory --set HAPAX_TRANSACTION__BYTES_MAX=4MiB --set NAME=VALUE

Each ``--set`` is one more row. Claims and a function; the records pass unchanged. Peaks differ from
run to run by what the client has read ahead when the first batch begins, so each row is run again
and again, in turn, and the least and the most are given. Docs: docs/capacity.md.
"""

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Producer

from bench.contenders import FUNCTION, Job, Service
from bench.measure import Summary, VoidRunError, noise
from bench.traffic import apart, message_id
from hapax.sandbox import Sandbox
from hapax.sandbox.machine import say

PARTITIONS = 4
TIMEOUT_S = 300.0
READ_AHEAD = 'HAPAX_KAFKA__PROPERTIES={"queued.max.messages.kbytes": 8192}'


def fill(servers: str, topic: str, records: int, size: int) -> None:
    """Write ``records`` values of ``size`` bytes that do not compress."""
    producer = Producer({"bootstrap.servers": servers, "message.max.bytes": 16 << 20})
    value = os.urandom(size)
    for number in range(records):
        headers: list[tuple[str, str | bytes | None]] = [("message-id", message_id(number))]
        producer.produce(topic, value, partition=number % PARTITIONS, headers=headers)
        if number % 100 == 0:
            producer.flush(60)
    if producer.flush(60):
        raise VoidRunError("the backlog could not be written")


def measure(who: Sequence[Service], size: int, records: int, rounds: int) -> list[str]:
    """Run all in turn on one backlog; return a table of peaks."""
    peaks: dict[str, list[float]] = {each.name: [] for each in who}
    with tempfile.TemporaryDirectory() as folder, Sandbox(nodes=1) as sandbox:
        sandbox.create_topic("memory-in", PARTITIONS)
        sandbox.create_topic("memory-out", PARTITIONS)
        apart(fill, sandbox.bootstrap_servers, "memory-in", records, size)
        for turn in range(rounds):
            for place, each in enumerate(who):
                log = Path(folder) / f"{turn}-{place}.log"
                job = Job(sandbox, f"memory-{turn}-{place}", "memory-in", "memory-out", log)
                spent = each.start(job).wait(TIMEOUT_S)
                peaks[each.name].append(spent.rss_mb)
                say(f"round {turn + 1}, {each.name}: {spent.rss_mb:.0f} MB ({noise()})")
    lines = [f"| {records:,} values of {size:,} B | peak MB |", "|---|--:|"]
    return lines + [f"| {name} | {Summary.of(found).text(0)} |" for name, found in peaks.items()]


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=100_000, help="Of each value.")
    parser.add_argument("--backlog", type=int, default=400_000_000, help="Bytes of all values.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=None, metavar="NAME=VALUE")
    given = parser.parse_args()
    who = [Service(name="as it comes", claims=True, transform=FUNCTION)]
    for change in given.set or [READ_AHEAD]:
        name, _, value = change.partition("=")
        who.append(Service(name=change, claims=True, transform=FUNCTION, more=((name, value),)))
    records = max(1, given.backlog // given.bytes)
    print("\n".join(measure(who, given.bytes, records, given.rounds)))


if __name__ == "__main__":
    main()
