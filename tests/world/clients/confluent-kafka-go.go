// confluent-kafka-go, with the defaults of the librdkafka in its module.
package main

import (
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

var actions = map[string]func(Asked){"read": read, "group": group, "write": write}

func read(asked Asked) {
	config := kafka.ConfigMap{"bootstrap.servers": asked.Bootstrap, "group.id": "none"}
	if asked.Level != "default" {
		check(config.SetKey("isolation.level", asked.Level))
	}
	consumer, err := kafka.NewConsumer(&config)
	check(err)
	metadata, err := consumer.GetMetadata(&asked.Topic, false, 30_000)
	check(err)
	var places []kafka.TopicPartition
	for _, one := range metadata.Topics[asked.Topic].Partitions {
		places = append(places, kafka.TopicPartition{Topic: &asked.Topic, Partition: one.ID, Offset: kafka.OffsetBeginning})
	}
	check(consumer.Assign(places))
	drain(messages(consumer), asked.idle(), asked.idle())
}

func group(asked Asked) {
	consumer, err := kafka.NewConsumer(&kafka.ConfigMap{
		"bootstrap.servers": asked.Bootstrap,
		"group.id":          asked.Group,
		"auto.offset.reset": "earliest",
	})
	check(err)
	check(consumer.SubscribeTopics([]string{asked.Topic}, nil))
	drain(messages(consumer), 20*time.Second, asked.idle())
	check(consumer.Close())
}

func messages(consumer *kafka.Consumer) <-chan Line {
	lines := make(chan Line)
	go func() {
		for !consumer.IsClosed() {
			if message, ok := consumer.Poll(100).(*kafka.Message); ok {
				lines <- line(message)
			}
		}
	}()
	return lines
}

func write(asked Asked) {
	config := kafka.ConfigMap{"bootstrap.servers": asked.Bootstrap}
	if asked.Variant == "murmur2" {
		check(config.SetKey("partitioner", "murmur2_random"))
	}
	producer, err := kafka.NewProducer(&config)
	check(err)
	go func() {
		for event := range producer.Events() {
			if message, ok := event.(*kafka.Message); ok && message.TopicPartition.Error != nil {
				say("refused", message.TopicPartition.Error.Error())
			}
		}
	}()
	for _, one := range given() {
		message := &kafka.Message{
			TopicPartition: kafka.TopicPartition{Topic: &asked.Topic, Partition: kafka.PartitionAny},
			Key:            one.K,
			Value:          one.V,
		}
		if one.T != nil {
			message.Timestamp = time.UnixMilli(*one.T)
		}
		check(producer.Produce(message, nil))
	}
	producer.Flush(60_000)
}

func line(message *kafka.Message) Line {
	headers := [][2]any{}
	for _, header := range message.Headers {
		headers = append(headers, [2]any{header.Key, header.Value})
	}
	at := message.TopicPartition
	return Line{at.Partition, int64(at.Offset), message.Key, message.Value, headers, message.Timestamp.UnixMilli()}
}
