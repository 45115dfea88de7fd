// KEDA's own kafka scaler, compiled from its module (clients.toml), as a ScaledObject sets it.
package main

import (
	"context"

	"github.com/kedacore/keda/v2/pkg/scalers/scalersconfig"
)

var actions = map[string]func(Asked){"lag": lag}

func lag(asked Asked) {
	trigger := map[string]string{
		"bootstrapServers":   asked.Bootstrap,
		"consumerGroup":      asked.Group,
		"topic":              asked.Topic,
		"offsetResetPolicy":  "earliest",
		"allowIdleConsumers": "true", // else the lag is cut at lagThreshold for each partition
	}
	config := &scalersconfig.ScalerConfig{TriggerMetadata: trigger}
	scaler, err := NewKafkaScaler(context.Background(), config)
	check(err)
	metrics, _, err := scaler.GetMetricsAndActivity(context.Background(), "lag")
	check(err)
	say("lag", metrics[0].Value.Value())
}
