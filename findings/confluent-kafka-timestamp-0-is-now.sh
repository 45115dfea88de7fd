#!/usr/bin/env bash
# confluent-kafka 2.16.1: produce(timestamp=0) writes the time of the call, not 1 January 1970. 0 is a
# valid time of a record and its neighbours 1 and -1 are written as they are: a program that copies
# records with their timestamps moves just these by 56 years, and no error says so.
# Expected: 0, as Java writes it; "not given" is another value (None).
# Seen (on the client's mock broker, which keeps what it is sent):
#   given 1: 1
#   given -1: -1
#   given 0: the time of the call
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet confluent-kafka==2.16.1
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import time
from confluent_kafka import Consumer, Producer, TopicPartition

producer = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
(broker,) = producer.list_topics(timeout=10).brokers.values()
before = time.time() * 1000
for given in 1, -1, 0:
    producer.produce("times", str(given), partition=0, timestamp=given)
assert producer.flush(10) == 0
reader = Consumer({"bootstrap.servers": f"{broker.host}:{broker.port}", "group.id": "g", "log_level": 0})
reader.assign([TopicPartition("times", 0, 0)])
for given in 1, -1, 0:
    message = reader.poll(10)
    assert message.value() == str(given).encode()
    (_, read) = message.timestamp()
    is_now = abs(read - before) < 60_000
    print(f"given {given}: {'the time of the call' if is_now else read}")
    assert is_now if given == 0 else read == given, "it has changed"
reader.close()
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py"
