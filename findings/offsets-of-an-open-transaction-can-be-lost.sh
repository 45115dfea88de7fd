#!/usr/bin/env bash
# Kafka 4.4.0: offsets that a transaction holds for a group are dropped without an error where the group's
# offsets are reset, or the group deleted, before the transaction ends. Both are accepted when the group
# has no members, as of producers that use assign(); the commit succeeds and publishes the records.
# Expected: the reset is refused while offsets are pending, or the commit sets them, or the commit fails.
# Seen, offset 3 before, 7 in the transaction:
#   reset to 0: accepted, records seen 1, offset 0
#   group deleted: accepted, records seen 1, offset none
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
        for (String how : List.of("reset to 0", "group deleted")) {
            String group = how.split(" ")[0];
            var place = new TopicPartition(group, 0);
            try (var producer = begun(group, 1)) {
                admin.alterConsumerGroupOffsets(group, Map.of(place, new OffsetAndMetadata(3))).all().get();
                var offsets = Map.of(place, new OffsetAndMetadata(7));
                producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(group));
                if (group.equals("reset"))
                    admin.alterConsumerGroupOffsets(group, Map.of(place, new OffsetAndMetadata(0))).all().get();
                else
                    admin.deleteConsumerGroups(List.of(group)).all().get();
                producer.commitTransaction();
            }
            int records = seen(group);
            var found = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(place);
            System.out.println(how + ": accepted, records seen " + records + ", offset "
                + (found == null ? "none" : found.offset()));
        }
        System.exit(0);
    }
}
END
seen=$("${run[@]}" -cp "$work/kafka/*" "$work/Try.java" "127.0.0.1:$port" 2>"$work/try.txt")
echo "$seen"
[[ $seen == "reset to 0: accepted, records seen 1, offset 0
group deleted: accepted, records seen 1, offset none" ]]
