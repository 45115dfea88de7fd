#!/usr/bin/env bash
# Kafka 4.4.0: the offsets of a share group do not say where it reads next. Ten records accepted, nothing
# left: listShareGroupOffsets (kafka-share-groups --describe) answers start offset 0, lag 0. Its lag counts
# the records of an open transaction, which no read_committed group is given.
# Expected: a start offset behind what was accepted, as a consumer group's, and lag 0 at rest.
# Seen:
#   ended: accepted 10, start offset 0, lag 0
#   open: accepted 10, start offset 0, lag 5
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
jars "$work/kafka" org.apache.kafka:kafka_2.13:4.4.0 org.slf4j:slf4j-simple:1.7.36
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
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
END
"${run[@]}" -cp "$work/kafka/*" kafka.tools.StorageTool format -t AAAAAAAAAAAAAAAAAAAAAA \
    -c "$work/server.properties" >"$work/format.txt" 2>&1
"${run[@]}" -cp "$work/kafka/*" kafka.Kafka "$work/server.properties" >"$work/broker.txt" 2>&1 &
broker=$!
cat >"$work/Try.java" <<'END'
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.*;

class Try {
    static Map<String, Object> brokers;
    static Admin admin;

    static KafkaProducer<String, String> begun(String topic, int count) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        var settings = new HashMap<>(brokers);
        settings.put("transactional.id", "writer-of-" + topic);
        var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        producer.beginTransaction();
        send(producer, topic, count);
        return producer;
    }

    static void send(KafkaProducer<String, String> producer, String topic, int count) {
        for (int number = 0; number < count; number++)
            producer.send(new ProducerRecord<>(topic, "record"));
        producer.flush();
    }

    /** How many records a read_committed reader gets that waits five seconds. */
    static int seen(String topic) {
        var settings = new HashMap<>(brokers);
        settings.put("isolation.level", "read_committed");
        var place = List.of(new TopicPartition(topic, 0));
        int count = 0;
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(place);
            consumer.seekToBeginning(place);
            for (int tries = 0; tries < 25; tries++)
                count += consumer.poll(Duration.ofMillis(200)).count();
        }
        return count;
    }

    public static void main(String[] words) throws Exception {
        brokers = Map.of("bootstrap.servers", words[0]);
        admin = Admin.create(brokers);
        for (String topic : List.of("ended", "open")) {
            var settings = new ArrayList<AlterConfigOp>();
            for (String one : List.of("share.auto.offset.reset=earliest", "share.isolation.level=read_committed"))
                settings.add(new AlterConfigOp(new ConfigEntry(one.split("=")[0], one.split("=")[1]),
                    AlterConfigOp.OpType.SET));
            var resource = new ConfigResource(ConfigResource.Type.GROUP, topic);
            admin.incrementalAlterConfigs(Map.of(resource, settings)).all().get();
            var producer = begun(topic, 10);
            producer.commitTransaction();
            if (topic.equals("open")) {
                producer.beginTransaction();
                send(producer, topic, 5);
            }
            var names = new HashMap<>(brokers);
            names.put("group.id", topic);
            int accepted = 0;
            try (var consumer = new KafkaShareConsumer<>(names, new StringDeserializer(), new StringDeserializer())) {
                consumer.subscribe(List.of(topic));
                for (int tries = 0; tries < 75; tries++) {
                    accepted += consumer.poll(Duration.ofMillis(200)).count();
                    consumer.commitSync();
                }
            }
            var asked = Map.of(topic, new ListShareGroupOffsetsSpec());
            var found = admin.listShareGroupOffsets(asked).partitionsToOffsetInfo(topic).get()
                .get(new TopicPartition(topic, 0));
            System.out.println(topic + ": accepted " + accepted + ", start offset " + found.startOffset() + ", lag "
                + found.lag().orElse(-1L));
        }
        System.exit(0);
    }
}
END
seen=$("${run[@]}" -cp "$work/kafka/*" "$work/Try.java" "127.0.0.1:$port" 2>"$work/try.txt")
echo "$seen"
[[ $seen == "ended: accepted 10, start offset 0, lag 0
open: accepted 10, start offset 0, lag 5" ]]
