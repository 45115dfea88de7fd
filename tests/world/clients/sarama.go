// Sarama: Consumer for a topic, ConsumerGroup, SyncProducer; lag by Client.GetOffset, as Burrow
// and other monitors that are made of Sarama, and by HighWaterMarkOffset.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"
)

var actions = map[string]func(Asked){"read": read, "group": group, "write": write, "lag": lag}

func read(asked Asked) {
	config := sarama.NewConfig()
	if asked.Level == "read_committed" {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer([]string{asked.Bootstrap}, config)
	check(err)
	partitions, err := consumer.Partitions(asked.Topic)
	check(err)
	lines := make(chan Line)
	for _, partition := range partitions {
		one, err := consumer.ConsumePartition(asked.Topic, partition, sarama.OffsetOldest)
		check(err)
		go func() {
			for message := range one.Messages() {
				lines <- line(message)
			}
		}()
	}
	drain(lines, asked.idle(), asked.idle())
}

type handler chan Line

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (lines handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			lines <- line(message)
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func group(asked Asked) {
	config := sarama.NewConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	members, err := sarama.NewConsumerGroup([]string{asked.Bootstrap}, asked.Group, config)
	check(err)
	ctx, leave := context.WithCancel(context.Background())
	lines := make(handler)
	ended := make(chan error)
	go func() {
		for ctx.Err() == nil {
			check(members.Consume(ctx, []string{asked.Topic}, lines))
		}
		ended <- members.Close()
	}()
	drain(lines, 20*time.Second, asked.idle())
	leave()
	check(<-ended)
}

func write(asked Asked) {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	switch asked.Variant {
	case "reference-hash":
		config.Producer.Partitioner = sarama.NewReferenceHashPartitioner
	case "crc":
		config.Producer.Partitioner = sarama.NewConsistentCRCHashPartitioner
	case "murmur2":
		config.Producer.Partitioner = sarama.NewMurmur2Partitioner
	}
	producer, err := sarama.NewSyncProducer([]string{asked.Bootstrap}, config)
	check(err)
	var messages []*sarama.ProducerMessage
	for _, one := range given() {
		message := &sarama.ProducerMessage{Topic: asked.Topic, Value: sarama.ByteEncoder(one.V)}
		if one.K != nil {
			message.Key = sarama.ByteEncoder(one.K)
		}
		if one.T != nil {
			message.Timestamp = time.UnixMilli(*one.T)
		}
		messages = append(messages, message)
	}
	var refused sarama.ProducerErrors
	if err := producer.SendMessages(messages); errors.As(err, &refused) {
		for _, one := range refused {
			say("refused", one.Err.Error())
		}
	}
	check(producer.Close())
}

func lag(asked Asked) {
	config := sarama.NewConfig()
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	client, err := sarama.NewClient([]string{asked.Bootstrap}, config)
	check(err)
	admin, err := sarama.NewClusterAdminFromClient(client)
	check(err)
	consumer, err := sarama.NewConsumerFromClient(client)
	check(err)
	partitions, err := client.Partitions(asked.Topic)
	check(err)
	offsets, err := admin.ListConsumerGroupOffsets(asked.Group, map[string][]int32{asked.Topic: partitions})
	check(err)
	var byOffset, byHighWaterMark int64
	for _, partition := range partitions {
		offset := offsets.GetBlock(asked.Topic, partition).Offset
		end, err := client.GetOffset(asked.Topic, partition, sarama.OffsetNewest)
		check(err)
		byOffset += end - offset
		one, err := consumer.ConsumePartition(asked.Topic, partition, sarama.OffsetOldest)
		check(err)
		<-one.Messages() // the high water mark comes with records
		byHighWaterMark += one.HighWaterMarkOffset() - offset
	}
	say("lag", byOffset)
	say("lag", byHighWaterMark)
}

func line(message *sarama.ConsumerMessage) Line {
	headers := [][2]any{}
	for _, header := range message.Headers {
		headers = append(headers, [2]any{string(header.Key), header.Value})
	}
	return Line{message.Partition, message.Offset, message.Key, message.Value, headers, message.Timestamp.UnixMilli()}
}
