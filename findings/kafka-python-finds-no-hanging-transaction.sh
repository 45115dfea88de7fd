#!/usr/bin/env bash
# kafka-python 3.0.12: KafkaAdminClient.find_hanging_transactions() asks the coordinators for their old
# transactions. A hanging transaction (KIP-664) is one that a partition has open and no coordinator knows,
# so it is never found.
# Expected, by "mirrors kafka-transactions.sh --find-hanging": the transaction that this tool finds.
# Seen, with a record of an hour ago in a transaction that was never registered (Kafka 4.4.0):
#   kafka-transactions.sh find-hanging: hanging 0, producer 4711
#   describe_producers: producer 4711, open from 0
#   find_hanging_transactions: []
set -euo pipefail
work=$(mktemp -d)
broker=
trap '[[ -z $broker ]] || kill "$broker"; wait; rm -rf "$work"' EXIT
jars() { # into which folder, then each group:artifact:version, with all that it needs
    local into=$1 group artifact version
    mkdir "$into"
    while IFS=: read -r group artifact version; do
        echo "<dependency><groupId>$group</groupId><artifactId>$artifact</artifactId><version>$version</version></dependency>"
    done < <(printf '%s\n' "${@:2}") >"$into/wanted"
    echo "<project><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId>
        <version>1</version><packaging>pom</packaging><dependencies>$(cat "$into/wanted")</dependencies></project>" >"$into/pom.xml"
    mvn -q -B -f "$into/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
        -DoutputDirectory="$into" -DincludeScope=runtime >&2
}
run=(java -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1)
jars "$work/kafka" org.apache.kafka:kafka_2.13:4.4.0 org.apache.kafka:kafka-tools:4.4.0 org.slf4j:slf4j-simple:1.7.36
python3 -m venv "$work/env"
"$work/env/bin/pip" install -q --disable-pip-version-check kafka-python==3.0.12
read -r port controller < <(python3 -c 'import socket
both = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(one.getsockname()[1] for one in both))')
cat >"$work/server.properties" <<END
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:$controller
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$work/log
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.partition.verification.enable=false
END
"${run[@]}" -cp "$work/kafka/*" kafka.tools.StorageTool format -t AAAAAAAAAAAAAAAAAAAAAA \
    -c "$work/server.properties" >"$work/format.txt" 2>&1
"${run[@]}" -cp "$work/kafka/*" kafka.Kafka "$work/server.properties" >"$work/broker.txt" 2>&1 &
broker=$!
cat >"$work/try.py" <<'END'
import sys
import time

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import NewTopic
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

admin = KafkaAdminClient(bootstrap_servers=sys.argv[1], bootstrap_timeout_ms=60_000)
if sys.argv[2] == "write":
    admin.create_topics([NewTopic("orders", 1, 1)])
    batch = DefaultRecordBatchBuilder(2, 0, True, 4711, 0, 0, 0)
    batch.append(0, int((time.time() - 3600) * 1000), None, b"hidden", [])
    topic = ProduceRequest.TopicProduceData
    part = topic.PartitionProduceData(index=0, records=bytes(batch.build()))
    request = ProduceRequest(
        transactional_id="lost", acks=-1, timeout_ms=10_000, max_version=3,
        topic_data=[topic(name="orders", partition_data=[part])],
    )
    for _ in range(60):  # until the topic has a leader
        answer = admin._manager.run(admin._manager.send, request)
        if answer.responses[0].partition_responses[0].error_code == 0:
            break
        time.sleep(0.5)
else:
    (state,) = admin.describe_producers([TopicPartition("orders", 0)]).values()
    (one,) = state.active_producers
    print(f"describe_producers: producer {one.producer_id}, open from {one.current_transaction_start_offset}")
    print(f"find_hanging_transactions: {admin.find_hanging_transactions()}")
admin.close()
END
"$work/env/bin/python" "$work/try.py" "127.0.0.1:$port" write
"${run[@]}" -cp "$work/kafka/*" org.apache.kafka.tools.TransactionsCommand --bootstrap-server "127.0.0.1:$port" \
    find-hanging --broker-id 1 >"$work/tool.txt" 2>"$work/tool.err"
{
    awk '$1 == "orders" { print "kafka-transactions.sh find-hanging: hanging " $2 ", producer " $3 }' "$work/tool.txt"
    "$work/env/bin/python" "$work/try.py" "127.0.0.1:$port" find
} | tee "$work/seen"
diff "$work/seen" - <<'END'
kafka-transactions.sh find-hanging: hanging 0, producer 4711
describe_producers: producer 4711, open from 0
find_hanging_transactions: []
END
