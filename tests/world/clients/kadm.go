// kadm, the administrator of franz-go: its Lag of a group.
package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var actions = map[string]func(Asked){"lag": lag}

func lag(asked Asked) {
	client, err := kgo.NewClient(kgo.SeedBrokers(asked.Bootstrap))
	check(err)
	groups, err := kadm.NewClient(client).Lag(context.Background(), asked.Group)
	check(err)
	for _, group := range groups {
		check(group.Error())
		say("lag", group.Lag.Total())
	}
}
