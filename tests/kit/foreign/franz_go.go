// A consumer group of franz-go: BROKERS TOPIC GROUP earliest|latest COUNT.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	start := kgo.NewOffset().AtEnd()
	if os.Args[4] == "earliest" {
		start = kgo.NewOffset().AtStart()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]), kgo.ConsumeTopics(os.Args[2]), kgo.ConsumerGroup(os.Args[3]),
		kgo.ConsumeResetOffset(start),
	)
	if err != nil {
		panic(err)
	}
	count, _ := strconv.Atoi(os.Args[5])
	for n := 0; n < count; {
		fetched := client.PollFetches(context.Background())
		if errs := fetched.Errors(); len(errs) > 0 {
			panic(errs[0].Err)
		}
		fetched.EachRecord(func(record *kgo.Record) {
			n++
			fmt.Println(record.Partition, record.Offset)
		})
	}
	if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
		panic(err)
	}
	client.Close()
}
