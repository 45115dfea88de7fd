#!/usr/bin/env bash
# kafka-go 0.4.51: its Reader gives nil for an empty value, an empty key and an empty value of a header.
# What it has read and writes as it is, is another record: an empty value has become a tombstone, which
# deletes its key from a compacted topic. Its Writer keeps the two apart. Kafka 4.3.1; needs Go, Java, Maven.
# Expected: as read by franz-go 1.22.3, an empty value stays one.
# Seen:
#   written:                     key "k", value empty, header empty
#   copied by kafka-go:          key "k", value null, header null
#   written empty by kafka-go:   key "k", value empty, header empty
set -euo pipefail
work=$(mktemp -d)
broker=
trap '[[ -z $broker ]] || kill $broker; rm -rf "$work"' EXIT
cd "$work"

# A broker of one node on a free port.
cat > pom.xml <<'END'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
  <groupId>a</groupId><artifactId>a</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies><dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
  <version>4.3.1</version></dependency></dependencies></project>
END
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DoutputDirectory=jars > maven.log 2>&1
port=$((15000 + RANDOM % 15000))
cat > server.properties <<END
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:$((port + 1))
log.dirs=$work/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
END
java -cp 'jars/*' kafka.tools.StorageTool format -t AAAAAAAAAAAAAAAAAAAAAA \
    -c server.properties > format.log 2>&1
java -Xmx400m -cp 'jars/*' kafka.Kafka server.properties > broker.log 2>&1 & broker=$!
until (: < "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do kill -0 $broker; sleep 0.2; done

mkdir ask; cd ask
cat > main.go <<'END'
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	broker = os.Args[1]
	ctx    = context.Background()
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func franz(more ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(more, kgo.SeedBrokers(broker))...)
	check(err)
	return client
}

func create(topics ...string) {
	_, err := kadm.NewClient(franz()).CreateTopics(ctx, 1, 1, nil, topics...)
	check(err)
}

func name(content []byte) string {
	if content == nil {
		return "null"
	}
	return "empty"
}

func show(how, topic string) {
	reader := franz(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	one := reader.PollRecords(ctx, 1).Records()[0]
	fmt.Printf("%-28s key %q, value %s, header %s\n", how+":", one.Key, name(one.Value), name(one.Headers[0].Value))
}

func write(topic string, message kafka.Message) {
	writer := &kafka.Writer{Addr: kafka.TCP(broker), Topic: topic, RequiredAcks: kafka.RequireAll,
		BatchTimeout: 10 * time.Millisecond}
	check(writer.WriteMessages(ctx, kafka.Message{Key: message.Key, Value: message.Value, Headers: message.Headers}))
}

func main() {
	create("written", "copied", "empty")
	header := kgo.RecordHeader{Key: "h", Value: []byte{}}
	record := &kgo.Record{Topic: "written", Key: []byte("k"), Value: []byte{}, Headers: []kgo.RecordHeader{header}}
	check(franz().ProduceSync(ctx, record).FirstErr())
	message, err := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{broker}, Topic: "written"}).ReadMessage(ctx)
	check(err)
	write("copied", message)
	write("empty", kafka.Message{Key: []byte("k"), Value: []byte{}, Headers: []kafka.Header{{Key: "h", Value: []byte{}}}})
	show("written", "written")
	show("copied by kafka-go", "copied")
	show("written empty by kafka-go", "empty")
}
END
{
    go mod init ask
    go get github.com/segmentio/kafka-go@v0.4.51 github.com/twmb/franz-go@v1.22.3 \
        github.com/twmb/franz-go/pkg/kadm@v1.20.0
    go build -mod=mod -o ask .
} > build.log 2>&1
timeout 120 ./ask "127.0.0.1:$port" | tee seen
diff seen - <<'END'
written:                     key "k", value empty, header empty
copied by kafka-go:          key "k", value null, header null
written empty by kafka-go:   key "k", value empty, header empty
END
