// A consumer group of kafka-go: BROKERS TOPIC GROUP earliest|latest COUNT.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/segmentio/kafka-go"
)

func main() {
	start := kafka.LastOffset
	if os.Args[4] == "earliest" {
		start = kafka.FirstOffset
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{os.Args[1]}, Topic: os.Args[2], GroupID: os.Args[3], StartOffset: start,
		MaxWait: 500e6,
	})
	count, _ := strconv.Atoi(os.Args[5])
	for n := 0; n < count; n++ {
		record, err := reader.FetchMessage(context.Background())
		if err != nil {
			panic(err)
		}
		fmt.Println(record.Partition, record.Offset)
		if err := reader.CommitMessages(context.Background(), record); err != nil {
			panic(err)
		}
	}
	if err := reader.Close(); err != nil {
		panic(err)
	}
}
