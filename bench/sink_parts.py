"""A micro-batch that is published in parts against one that is published together, in turns.

    python -m bench.sink_parts [--records 400000] [--rounds 3] [--master 'local[2]'] [--lanes 2]

Both publish the same input in one micro-batch of one Spark session, into a topic of their own, and
which one begins changes with each round. Shown are the seconds that the sink's ``commit`` takes;
every output is compared with the input.
What cores allow is told by the machine: producers, the broker and Spark share them here.
"""

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path

from bench import traffic
from bench.spark import fill, rate
from bench.transforms import pipeline
from hapax.engines.spark.session import SparkOptions, connector_jars, open_session
from hapax.sandbox import Sandbox
from hapax.sandbox.machine import say
from hapax.spark import register

MODES = ("together", "parallel")


def main() -> None:
    words = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    words.add_argument("--records", type=int, default=400_000)
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--master", default="local[2]")
    words.add_argument("--lanes", type=int, default=0, help="0: as many as Spark has cores")
    chosen = words.parse_args()
    if chosen.lanes:
        os.environ["HAPAX_SPARK__LANES"] = str(chosen.lanes)  # before the JVM, which passes it on
    seconds: dict[str, list[float]] = {mode: [] for mode in MODES}
    with Sandbox() as sandbox, tempfile.TemporaryDirectory() as folder:
        servers = sandbox.bootstrap_servers
        sandbox.create_topic("backlog", traffic.PARTITIONS)
        traffic.apart(fill, servers, "backlog", chosen.records)
        session = open_session(SparkOptions("bench", chosen.master, jars=connector_jars()))
        register(session)
        reader = session.readStream.format("kafka").options(
            **{
                "kafka.bootstrap.servers": servers,
                "subscribe": "backlog",
                "startingOffsets": "earliest",
                "includeHeaders": "true",
            }
        )
        for number in range(chosen.rounds + 1):
            for mode in MODES if number % 2 else MODES[::-1]:
                topic = f"{mode}-{number}"
                sandbox.create_topic(topic, traffic.PARTITIONS)
                checkpoint = Path(folder) / topic
                writer = (
                    pipeline(reader.load())
                    .writeStream.format("hapax")
                    .options(
                        **{
                            "checkpointLocation": str(checkpoint),
                            "app": topic,
                            "topic": topic,
                            "kafka.bootstrap.servers": servers,
                            "transactionTimeout": "45s",
                            "publish": mode,
                            "report": "true",
                        }
                    )
                )
                writer.trigger(availableNow=True).start().awaitTermination()
                told = json.loads((checkpoint / "hapax" / "last.json").read_text())
                rate(servers, topic, chosen.records, 0)  # raises unless each is there once
                say(f"{topic}: {told['publish_s']:.2f} s")
                if number:  # the first round warms up
                    seconds[mode].append(told["publish_s"])
        session.stop()
    medians = {mode: statistics.median(found) for mode, found in seconds.items()}
    for mode, median in medians.items():
        say(f"{mode}: {median:.2f} s, {chosen.records / median:,.0f} records/s")
    ratios = [a / b for a, b in zip(seconds["together"], seconds["parallel"], strict=True)]
    say(f"parallel against together: {statistics.median(ratios):.2f} times as fast")


if __name__ == "__main__":
    main()
