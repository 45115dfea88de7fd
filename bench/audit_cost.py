"""What an audit costs: so many records in and out on a broker of its own, read and judged::

    python -m bench.audit_cost --records 1000000 [--engine spark --master local[2]]

Prints for each mode the seconds, the CPU seconds of all processes of the audit, and the load.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil  # type: ignore[import-untyped]  # it carries no types
from confluent_kafka import Consumer, Producer, TopicPartition

from hapax.sandbox import Sandbox

PARTITIONS, TRANSACTION_RECORDS, VALUE = 4, 10_000, b"x" * 100
MODES: dict[str, tuple[list[str], dict[str, str]]] = {
    "values": ([], {}),
    "values, claims": ([], {"HAPAX_DEDUP__REDIS_URL": "redis://127.0.0.1:1/0"}),
    "no transform": (["--no-transform"], {"HAPAX_TRANSFORM": "bench.transforms:reverse"}),
}


def records(count: int) -> Iterator[tuple[int, list[tuple[str, bytes]], list[tuple[str, bytes]]]]:
    """Yield partition, headers of the input, and those that the output has besides."""
    for number in range(count):
        partition, offset = number % PARTITIONS, number // PARTITIONS
        event_id = b"%036d" % number
        stamp = [("hapax-id", event_id), ("hapax-source", b"in/%d/%d" % (partition, offset))]
        yield partition, [("message-id", event_id)], stamp


def write(bootstrap: str, count: int) -> None:
    """Write inputs plainly, and outputs in transactions, as a worker does."""
    common: dict[str, str | int] = {"bootstrap.servers": bootstrap, "linger.ms": 20}
    plain = Producer(common)
    for partition, headers, _stamp in records(count):
        send(plain, "in", partition, headers)
    plain.flush()
    bound = Producer({**common, "transactional.id": "writer"})
    bound.init_transactions()
    for number, (partition, headers, stamp) in enumerate(records(count)):
        if number % TRANSACTION_RECORDS == 0:
            if number:
                bound.commit_transaction()
            bound.begin_transaction()
        send(bound, "out", partition, headers + stamp)
    bound.commit_transaction()
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": "cost"})
    each = count // PARTITIONS
    progress = [TopicPartition("in", number, each) for number in range(PARTITIONS)]
    group.commit(offsets=progress, asynchronous=False)
    group.close()


def send(producer: Producer, topic: str, partition: int, headers: list[tuple[str, bytes]]) -> None:
    while True:
        try:
            producer.produce(topic, VALUE, b"k", partition, headers=list(headers))
        except BufferError:
            producer.poll(0.1)
        else:
            return


def cost(environment: dict[str, str], options: list[str]) -> dict[str, object]:
    """Run the command; return what it took."""
    began_s = time.monotonic()
    command = [sys.executable, "-m", "hapax", "audit", "--json", *options]
    audit = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    known: dict[int, float] = {}
    watched = psutil.Process(audit.pid)
    while audit.poll() is None:
        for process in [watched, *watched.children(recursive=True)]:
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            known[process.pid] = times.user + times.system
        time.sleep(0.2)
    assert audit.stdout is not None
    told = json.loads(audit.stdout.read())
    return {
        "seconds": round(time.monotonic() - began_s, 1),
        "cpu_s": round(sum(known.values()), 1),
        "records": told["totals"]["records"],
        "clean": told["clean"],
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--engine", default="local", choices=("local", "spark"))
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args()
    engine = ["--engine", arguments.engine]
    if arguments.engine == "spark":
        engine += ["--master", arguments.master]
    sandbox = Sandbox(nodes=1)
    sandbox.start()
    try:
        for topic in ("in", "out"):
            sandbox.create_topic(topic, PARTITIONS)
        write(sandbox.bootstrap_servers, arguments.records)
        for mode, (options, settings) in MODES.items():
            environment = {
                "PATH": os.environ["PATH"],
                "HAPAX_KAFKA__BOOTSTRAP_SERVERS": sandbox.bootstrap_servers,
                "HAPAX_APP": "cost",
                "HAPAX_INPUT__TOPICS": "in",
                "HAPAX_OUTPUT__TOPIC": "out",
                **settings,
            }
            found = cost(environment, [*engine, *options])
            sys.stdout.write(f"{mode}: {found}\n")
            sys.stdout.flush()
    finally:
        sandbox.stop()


if __name__ == "__main__":
    main()
