"""How much log a worker writes at a steady pace, by level.

python -m bench.log_volume                # 10 records/s for 30 s at info, with a function
"""

import argparse
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer

from bench.contenders import Job, Service
from hapax.sandbox import Sandbox
from hapax.sandbox.machine import say

DAY_S = 86_400
START_S = 60.0


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=10.0, help="records a second")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--level", default="info", choices=("debug", "info"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Sandbox(nodes=1) as sandbox:
        log = Path(folder) / "worker.log"
        for topic in ("in", "out"):
            sandbox.create_topic(topic, 12)
        more = (("HAPAX_TELEMETRY__LOG_LEVEL", given.level),)
        who = Service(name="log", transform="bench.transforms:unchanged", more=more)
        child = who.start(Job(sandbox, "log", "in", "out", log, at_end=False))
        producer = Producer({"bootstrap.servers": sandbox.bootstrap_servers})
        until_s = time.monotonic() + START_S
        while b"partitions_assigned" not in log.read_bytes() and time.monotonic() < until_s:
            time.sleep(0.1)
        before = log.stat().st_size
        for _ in range(int(given.rate * given.seconds)):
            producer.produce("in", b"x" * 100)
            producer.flush(10)
            time.sleep(1 / given.rate)
        written = log.stat().st_size - before
        child.stop()
        child.wait(START_S)
    day_mb = written / given.seconds * DAY_S / 1e6
    told = f"{written} bytes in {given.seconds:g} s, {day_mb:.0f} MB a day"
    say(f"{given.rate:g} records/s at {given.level}: {told}")


if __name__ == "__main__":
    main()
