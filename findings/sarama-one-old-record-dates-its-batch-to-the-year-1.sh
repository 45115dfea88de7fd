#!/usr/bin/env bash
# Sarama 1.61.1 takes a batch whose first record has a time before 1970 for one without times, and
# adds the distances of the others to the year 1: a record of 2023 that shares the batch
# is read as one of the year 54. The broker and franz-go 1.22.3 keep all of these times.
# Sarama itself refuses to write a batch that begins so, and writes the same times in another order.
# Kafka 4.3.1; needs Go, Java and Maven.
# Expected: the times that were written, 1969-12-31T23:59:55Z and 2023-11-14T22:13:20Z.
# Seen:
#   franz-go reads:                       1969-12-31T23:59:55Z 2023-11-14T22:13:20Z
#   Sarama reads:                         0001-01-01T00:00:00Z 0054-11-14T22:13:25Z
#   Sarama writes the old record first:   kafka: error encoding packet: invalid timestamp (1969-12-31 23:59:55 +0000 UTC)
#   Sarama writes it second, franz reads: 2023-11-14T22:13:20Z 1969-12-31T23:59:55Z
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
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
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

var (
	before = time.UnixMilli(-5000).UTC()
	later  = time.UnixMilli(1_700_000_000_000).UTC()
)

func text(times []time.Time) string {
	return times[0].UTC().Format(time.RFC3339) + " " + times[1].UTC().Format(time.RFC3339)
}

func byFranz(topic string) (times []time.Time) {
	reader := franz(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for len(times) < 2 {
		for _, record := range reader.PollRecords(ctx, 2).Records() {
			times = append(times, record.Timestamp)
		}
	}
	return times
}

func bySarama(topic string) (times []time.Time) {
	consumer, err := sarama.NewConsumer([]string{broker}, sarama.NewConfig())
	check(err)
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	check(err)
	for len(times) < 2 {
		times = append(times, (<-partition.Messages()).Timestamp)
	}
	return times
}

func write(topic string, times ...time.Time) error {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	config.Producer.Flush.Messages = 2 // both in one batch
	producer, err := sarama.NewSyncProducer([]string{broker}, config)
	check(err)
	var messages []*sarama.ProducerMessage
	for _, one := range times {
		messages = append(messages, &sarama.ProducerMessage{Topic: topic, Timestamp: one, Value: sarama.StringEncoder("v")})
	}
	var refused sarama.ProducerErrors
	if errors.As(producer.SendMessages(messages), &refused) {
		return refused[0].Err
	}
	return nil
}

func main() {
	create("franz", "sarama")
	writer := franz(kgo.ProducerLinger(time.Second)) // both in one batch
	one := &kgo.Record{Topic: "franz", Timestamp: before, Value: []byte("v")}
	two := &kgo.Record{Topic: "franz", Timestamp: later, Value: []byte("v")}
	check(writer.ProduceSync(ctx, one, two).FirstErr())
	fmt.Println("franz-go reads:                      ", text(byFranz("franz")))
	fmt.Println("Sarama reads:                        ", text(bySarama("franz")))
	fmt.Println("Sarama writes the old record first:  ", write("sarama", before, later))
	check(write("sarama", later, before))
	fmt.Println("Sarama writes it second, franz reads:", text(byFranz("sarama")))
}
END
{
    go mod init ask
    go get github.com/IBM/sarama@v1.61.1 github.com/twmb/franz-go@v1.22.3 \
        github.com/twmb/franz-go/pkg/kadm@v1.20.0
    go build -mod=mod -o ask .
} > build.log 2>&1
timeout 120 ./ask "127.0.0.1:$port" | tee seen
diff seen - <<'END'
franz-go reads:                       1969-12-31T23:59:55Z 2023-11-14T22:13:20Z
Sarama reads:                         0001-01-01T00:00:00Z 0054-11-14T22:13:25Z
Sarama writes the old record first:   kafka: error encoding packet: invalid timestamp (1969-12-31 23:59:55 +0000 UTC)
Sarama writes it second, franz reads: 2023-11-14T22:13:20Z 1969-12-31T23:59:55Z
END
