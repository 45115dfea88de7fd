// franz-go: one client that polls and produces, as its README shows.
package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var actions = map[string]func(Asked){"read": read, "group": group, "write": write}

func client(asked Asked, more ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(more, kgo.SeedBrokers(asked.Bootstrap))...)
	check(err)
	return made
}

func read(asked Asked) {
	options := []kgo.Opt{
		kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if asked.Level == "read_committed" {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	poll(client(asked, options...), asked.idle(), asked.idle(), false)
}

func group(asked Asked) {
	members := client(asked,
		kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.DisableAutoCommit(),
	)
	poll(members, 20*time.Second, asked.idle(), true)
	members.Close()
}

func poll(client *kgo.Client, first, idle time.Duration, commits bool) {
	lines := make(chan Line)
	go func() {
		for {
			fetches := client.PollFetches(context.Background())
			if fetches.IsClientClosed() {
				return
			}
			fetches.EachError(func(_ string, _ int32, err error) { check(err) })
			fetches.EachRecord(func(record *kgo.Record) { lines <- line(record) })
			if commits {
				check(client.CommitUncommittedOffsets(context.Background()))
			}
		}
	}()
	drain(lines, first, idle)
}

func write(asked Asked) {
	producer := client(asked, kgo.DefaultProduceTopic(asked.Topic))
	var records []*kgo.Record
	for _, one := range given() {
		record := &kgo.Record{Key: one.K, Value: one.V}
		if one.T != nil {
			record.Timestamp = time.UnixMilli(*one.T)
		}
		records = append(records, record)
	}
	for _, result := range producer.ProduceSync(context.Background(), records...) {
		if result.Err != nil {
			say("refused", result.Err.Error())
		}
	}
	producer.Close()
}

func line(record *kgo.Record) Line {
	headers := [][2]any{}
	for _, header := range record.Headers {
		headers = append(headers, [2]any{header.Key, header.Value})
	}
	return Line{record.Partition, record.Offset, record.Key, record.Value, headers, record.Timestamp.UnixMilli()}
}
