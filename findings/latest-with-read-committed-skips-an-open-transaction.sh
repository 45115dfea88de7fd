#!/usr/bin/env bash
# Sarama 1.61.1 and kafka-go 0.4.51, set to read_committed and to begin at the end of a topic, begin at
# its high watermark; franz-go 1.22.3 and confluent-kafka-go 2.11.1 (librdkafka) at the last stable
# offset, as Java's consumer does. Records of a transaction that is open at that moment and
# is committed later are therefore never read by the first two: they skip committed records that
# became visible after they began. Kafka 4.3.1; needs Go, Java and Maven.
# Expected: 5 records of the transaction and the one after it, by each of them.
# Seen:
#   last stable offset: 0
#   Sarama, GetOffset(OffsetNewest) with ReadCommitted: 5
#   confluent-kafka-go: open open open open open after
#   franz-go: open open open open open after
#   kafka-go: after
#   sarama: after
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
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"
	confluent "github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	broker = os.Args[1]
	topic  = "orders"
	ctx    = context.Background()
	seen   = map[string]chan string{}
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func franz(more ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(more, kgo.SeedBrokers(broker), kgo.DefaultProduceTopic(topic))...)
	check(err)
	return client
}

func readBySarama(records chan<- string) {
	config := sarama.NewConfig()
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	client, err := sarama.NewClient([]string{broker}, config)
	check(err)
	end, err := client.GetOffset(topic, 0, sarama.OffsetNewest)
	check(err)
	fmt.Println("Sarama, GetOffset(OffsetNewest) with ReadCommitted:", end)
	consumer, err := sarama.NewConsumerFromClient(client)
	check(err)
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetNewest)
	check(err)
	for message := range partition.Messages() {
		records <- string(message.Value)
	}
}

func readByFranz(records chan<- string) {
	client := franz(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	for {
		client.PollFetches(ctx).EachRecord(func(record *kgo.Record) { records <- string(record.Value) })
	}
}

func readByKafkaGo(records chan<- string) {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{broker}, Topic: topic,
		IsolationLevel: kafka.ReadCommitted, MaxWait: time.Second})
	check(reader.SetOffset(kafka.LastOffset))
	for {
		message, err := reader.ReadMessage(ctx)
		check(err)
		if message.Value[0] != 0 { // it delivers markers of transactions, too
			records <- string(message.Value)
		}
	}
}

func readByConfluent(records chan<- string) {
	consumer, err := confluent.NewConsumer(&confluent.ConfigMap{"bootstrap.servers": broker,
		"group.id": "none", "enable.auto.commit": false, "isolation.level": "read_committed"})
	check(err)
	check(consumer.Assign([]confluent.TopicPartition{{Topic: &topic, Offset: confluent.OffsetEnd}}))
	for {
		if message, is := consumer.Poll(100).(*confluent.Message); is {
			records <- string(message.Value)
		}
	}
}

func main() {
	producer := franz(kgo.TransactionalID("t"))
	_, err := kadm.NewClient(producer).CreateTopic(ctx, 1, 1, nil, topic)
	check(err)
	check(producer.BeginTransaction())
	for range 5 {
		check(producer.ProduceSync(ctx, kgo.StringRecord("open")).FirstErr())
	}
	stable, err := kadm.NewClient(producer).ListCommittedOffsets(ctx, topic)
	check(err)
	one, _ := stable.Lookup(topic, 0)
	fmt.Println("last stable offset:", one.Offset)
	readers := map[string]func(chan<- string){"sarama": readBySarama, "franz-go": readByFranz,
		"kafka-go": readByKafkaGo, "confluent-kafka-go": readByConfluent}
	for name, read := range readers {
		seen[name] = make(chan string, 100)
		go read(seen[name])
	}
	time.Sleep(10 * time.Second) // all have begun: there is nothing to see before the commit
	check(producer.EndTransaction(ctx, kgo.TryCommit))
	check(franz().ProduceSync(ctx, kgo.StringRecord("after")).FirstErr())
	var lines []string
	for name, records := range seen {
		var all []string
		for !slices.Contains(all, "after") {
			all = append(all, <-records)
		}
		lines = append(lines, name+": "+strings.Join(all, " "))
	}
	slices.Sort(lines)
	fmt.Println(strings.Join(lines, "\n"))
}
END
{
    go mod init ask
    go get github.com/IBM/sarama@v1.61.1 github.com/twmb/franz-go@v1.22.3 \
        github.com/twmb/franz-go/pkg/kadm@v1.20.0 github.com/segmentio/kafka-go@v0.4.51 \
        github.com/confluentinc/confluent-kafka-go/v2@v2.11.1
    go build -mod=mod -o ask .
} > build.log 2>&1
timeout 120 ./ask "127.0.0.1:$port" | tee seen
diff seen - <<'END'
last stable offset: 0
Sarama, GetOffset(OffsetNewest) with ReadCommitted: 5
confluent-kafka-go: open open open open open after
franz-go: open open open open open after
kafka-go: after
sarama: after
END
