// The CloudEvents SDK for Go, by its binding for Sarama.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/cloudevents/sdk-go/protocol/kafka_sarama/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	var asked struct {
		Attributes map[string]string
		Data       map[string]any
	}
	check(json.Unmarshal([]byte(os.Args[2]), &asked))
	made := event.New()
	made.SetID(asked.Attributes["id"])
	made.SetSource(asked.Attributes["source"])
	made.SetType(asked.Attributes["type"])
	made.SetSubject(asked.Attributes["subject"])
	at, err := time.Parse(time.RFC3339, asked.Attributes["time"])
	check(err)
	made.SetTime(at)
	check(made.SetData(event.ApplicationJSON, asked.Data))
	for _, form := range []string{"binary", "structured"} {
		ctx := binding.WithForceBinary(context.Background())
		if form == "structured" {
			ctx = binding.WithForceStructured(context.Background())
		}
		message := sarama.ProducerMessage{Topic: "world"}
		check(kafka_sarama.WriteProducerMessage(ctx, binding.ToMessage(&made), &message))
		value, err := message.Value.Encode()
		check(err)
		headers := [][]any{}
		for _, one := range message.Headers {
			headers = append(headers, []any{string(one.Key), one.Value})
		}
		line, err := json.Marshal(map[string]any{"form": form, "k": nil, "v": value, "h": headers})
		check(err)
		fmt.Println(string(line))
	}
}
