// kafka-go: a Reader a partition, a Reader of a group, and a Writer, as its README shows.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"
)

var actions = map[string]func(Asked){"read": read, "group": group, "write": write}

func read(asked Asked) {
	conn, err := kafka.Dial("tcp", asked.Bootstrap)
	check(err)
	partitions, err := conn.ReadPartitions(asked.Topic)
	check(err)
	lines := make(chan Line)
	for _, partition := range partitions {
		config := kafka.ReaderConfig{
			Brokers:   []string{asked.Bootstrap},
			Topic:     asked.Topic,
			Partition: partition.ID,
		}
		if asked.Level == "read_committed" {
			config.IsolationLevel = kafka.ReadCommitted
		}
		reader := kafka.NewReader(config)
		go func() {
			for {
				message, err := reader.ReadMessage(context.Background())
				check(err)
				lines <- line(message)
			}
		}()
	}
	drain(lines, asked.idle(), asked.idle())
}

func group(asked Asked) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:        []string{asked.Bootstrap},
		GroupID:        asked.Group,
		Topic:          asked.Topic,
		StartOffset:    kafka.FirstOffset,
		IsolationLevel: kafka.ReadCommitted,
	})
	ctx, leave := context.WithCancel(context.Background())
	lines := make(chan Line)
	go func() {
		for {
			message, err := reader.FetchMessage(ctx)
			if ctx.Err() != nil {
				return
			}
			check(err)
			lines <- line(message)
			check(reader.CommitMessages(ctx, message))
		}
	}()
	drain(lines, 20*time.Second, asked.idle())
	leave()
	check(reader.Close())
}

func write(asked Asked) {
	writer := &kafka.Writer{Addr: kafka.TCP(asked.Bootstrap), Topic: asked.Topic}
	switch asked.Variant {
	case "hash":
		writer.Balancer = &kafka.Hash{}
	case "crc32":
		writer.Balancer = kafka.CRC32Balancer{}
	case "murmur2":
		writer.Balancer = kafka.Murmur2Balancer{}
	case "require-all":
		writer.RequiredAcks = kafka.RequireAll
	}
	var messages []kafka.Message
	for _, one := range given() {
		message := kafka.Message{Key: one.K, Value: one.V}
		if one.T != nil {
			message.Time = time.UnixMilli(*one.T)
		}
		messages = append(messages, message)
	}
	err := writer.WriteMessages(context.Background(), messages...)
	var each kafka.WriteErrors
	if errors.As(err, &each) {
		for _, one := range each {
			if one != nil {
				say("refused", one.Error())
			}
		}
		err = nil
	}
	check(err)
	check(writer.Close())
}

func line(message kafka.Message) Line {
	headers := [][2]any{}
	for _, header := range message.Headers {
		headers = append(headers, [2]any{header.Key, header.Value})
	}
	return Line{int32(message.Partition), message.Offset, message.Key, message.Value, headers, message.Time.UnixMilli()}
}
