#!/usr/bin/env bash
# A topic with message.timestamp.type=LogAppendTime has the broker's time for each record; the times of
# the producers stay in the log, and are not to be used. kafka-go 0.4.51 (Reader and Client.Fetch) and
# @platformatic/kafka 2.12.1 do not look at the batch's type of time and give the producer's: what an
# operator set against clocks that are wrong has no effect on their readers, while the broker's
# retention and searches by time go by its own. Sarama 1.61.1, franz-go 1.22.3 and KafkaJS 2.2.4 give the
# broker's. Kafka 4.3.1; needs Go, Java, Maven, npm.
# Expected: the time of the broker, from each of them.
# Seen, of a record with a time of 2001:
#   franz-go:     the broker's time
#   Sarama:       the broker's time
#   kafka-go:     2001-09-09T01:46:40Z
#   KafkaJS:      the broker's time
#   platformatic: 2001-09-09T01:46:40Z
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

mkdir ask node
cat > ask/main.go <<'END_OF_PROGRAM'
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const topic = "appended"

var old = time.Unix(1_000_000_000, 0).UTC()

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func told(name string, at time.Time) {
	text := at.UTC().Format(time.RFC3339)
	if since := time.Since(at); since > -time.Minute && since < 10*time.Minute {
		text = "the broker's time"
	}
	fmt.Printf("%-13s %s\n", name+":", text)
}

func main() {
	broker := os.Args[1]
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	check(err)
	by := "LogAppendTime"
	settings := map[string]*string{"message.timestamp.type": &by}
	_, err = kadm.NewClient(client).CreateTopics(ctx, 1, 1, settings, topic)
	check(err)
	check(client.ProduceSync(ctx, &kgo.Record{Topic: topic, Timestamp: old, Value: []byte("v")}).FirstErr())
	told("franz-go", client.PollRecords(ctx, 1).Records()[0].Timestamp)

	consumer, err := sarama.NewConsumer([]string{broker}, sarama.NewConfig())
	check(err)
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	check(err)
	told("Sarama", (<-partition.Messages()).Timestamp)

	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{broker}, Topic: topic})
	message, err := reader.ReadMessage(ctx)
	check(err)
	told("kafka-go", message.Time)
}
END_OF_PROGRAM
cat > node/ask.mjs <<'END_OF_PROGRAM'
import { Consumer } from '@platformatic/kafka'
import { Kafka, logLevel } from 'kafkajs'

const brokers = [process.argv[2]]

function told(name, ms) {
  const fresh = Math.abs(Date.now() - ms) < 600_000
  const text = fresh ? "the broker's time" : new Date(ms).toISOString().replace('.000Z', 'Z')
  console.log(`${name}:`.padEnd(13), text)
}

const kafkajs = new Kafka({ brokers, logLevel: logLevel.NOTHING }).consumer({ groupId: 'kafkajs' })
await kafkajs.connect()
await kafkajs.subscribe({ topics: ['appended'], fromBeginning: true })
await new Promise((resolve) => kafkajs.run({
  eachMessage: async ({ message }) => {
    told('KafkaJS', Number(message.timestamp))
    resolve()
  },
}))
const platformatic = new Consumer({ groupId: 'platformatic', clientId: 'ask', bootstrapBrokers: brokers })
for await (const message of await platformatic.consume({ topics: ['appended'], mode: 'earliest' })) {
  told('platformatic', Number(message.timestamp))
  process.exit(0)
}
END_OF_PROGRAM
(
    cd ask
    go mod init ask
    go get github.com/segmentio/kafka-go@v0.4.51 github.com/IBM/sarama@v1.61.1 \
        github.com/twmb/franz-go@v1.22.3 github.com/twmb/franz-go/pkg/kadm@v1.20.0
    go build -mod=mod -o ask .
) > build.log 2>&1
(
    cd node
    npm init --yes
    npm install node@24.21.0 kafkajs@2.2.4 @platformatic/kafka@2.12.1
) > npm.log 2>&1
{
    timeout 120 ask/ask "127.0.0.1:$port"
    timeout 120 node/node_modules/node/bin/node --no-warnings node/ask.mjs "127.0.0.1:$port"
} | tee seen
diff seen - <<'END_OF_SEEN'
franz-go:     the broker's time
Sarama:       the broker's time
kafka-go:     2001-09-09T01:46:40Z
KafkaJS:      the broker's time
platformatic: 2001-09-09T01:46:40Z
END_OF_SEEN
