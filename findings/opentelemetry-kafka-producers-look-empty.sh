#!/usr/bin/env bash
# The producer that OpenTelemetry's instrument_producer() returns (0.66b1, with confluent-kafka 2.16.1) is
# a Producer that was never opened, in front of the one that works: it passes on what it names, and
# len(), the count of messages that are not delivered yet, is not among it. It is 0 at all times, without
# an error, so a loop that ends when nothing is left ends at once, and what waits is lost with the process.
# Expected: the number of messages that wait, or an error, as other calls that it does not pass on raise.
# Seen, of 1,000 messages and the loop "while len(producer): producer.poll(0.1)" before the end:
#   plain:        1000 waited, 1000 were written
#   instrumented: 0 waited, 0 were written
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet confluent-kafka==2.16.1 opentelemetry-sdk==1.45.1 opentelemetry-instrumentation-confluent-kafka==0.66b1
cat > "$work/produce.py" <<'END_OF_PROGRAM'
import sys
from confluent_kafka import Producer

brokers, topic = sys.argv[1:]
# linger.ms: what fills no batch waits so long, as it would for a broker that is slow.
producer = Producer({"bootstrap.servers": brokers, "linger.ms": 2000})
if topic == "instrumented":
    from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
    producer = ConfluentKafkaInstrumentor.instrument_producer(producer)
for number in range(1000):
    producer.produce(topic, str(number))
print(len(producer), flush=True)
while len(producer):
    producer.poll(0.1)
END_OF_PROGRAM
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import subprocess, sys
from confluent_kafka import Consumer, Producer, TopicPartition

owner = Producer({"bootstrap.servers": "-", "test.mock.num.brokers": 1, "log_level": 0})  # librdkafka's own broker
(broker,) = owner.list_topics("plain", timeout=30).brokers.values()
address = f"{broker.host}:{broker.port}"
seen = []
for topic in ("plain", "instrumented"):
    owner.list_topics(topic, timeout=30)
    command = [sys.executable, sys.argv[1], address, topic]
    waited = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    consumer = Consumer({"bootstrap.servers": address, "group.id": "ask", "log_level": 0})
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, one), timeout=30)[1] for one in partitions]
    consumer.close()
    seen.append((waited, sum(ends)))
    print(f"{topic + ':':13} {waited} waited, {sum(ends)} were written")
assert seen == [(1000, 1000), (0, 0)], "it has changed"
END_OF_PROGRAM
timeout 200 "$work/venv/bin/python" "$work/ask.py" "$work/produce.py"
