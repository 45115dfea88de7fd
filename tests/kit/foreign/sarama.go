// A consumer group of Sarama: BROKERS TOPIC GROUP earliest|latest COUNT.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/IBM/sarama"
)

type handler struct {
}

func (h *handler) Setup(session sarama.ConsumerGroupSession) error { return nil }

func (h *handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// Records of all partitions come through one channel, so that they are counted one by one.
var records = make(chan *sarama.ConsumerMessage)

func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	fmt.Println("ready", claim.Partition())
	for {
		select {
		case record, open := <-claim.Messages():
			if !open {
				return nil
			}
			records <- record
			session.MarkMessage(record, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func main() {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	if os.Args[4] == "earliest" {
		config.Consumer.Offsets.Initial = sarama.OffsetOldest
	}
	group, err := sarama.NewConsumerGroup([]string{os.Args[1]}, os.Args[3], config)
	if err != nil {
		panic(err)
	}
	count, _ := strconv.Atoi(os.Args[5])
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for n := 0; n < count; n++ {
			record := <-records
			fmt.Println(record.Partition, record.Offset)
		}
		cancel()
	}()
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{os.Args[2]}, &handler{}); err != nil && ctx.Err() == nil {
			panic(err)
		}
	}
	if err := group.Close(); err != nil {
		panic(err)
	}
}
