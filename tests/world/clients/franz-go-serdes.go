// Serdes by franz-go's sr: it writes id and path, and the functions that are registered the content.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/hamba/avro/v2"
	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

type order struct {
	ID    int64    `avro:"id" json:"id"`
	Note  *string  `avro:"note" json:"note"`
	Items []string `avro:"items" json:"items"`
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func must[T any](made T, err error) T {
	check(err)
	return made
}

func main() {
	var asked struct {
		URL, Topic, Format, Message, Schema string
		Descriptor                          []byte
	}
	check(json.Unmarshal([]byte(os.Args[2]), &asked))
	client := must(sr.NewClient(sr.URLs(asked.URL)))
	latest := must(client.SchemaByVersion(context.Background(), asked.Topic+"-value", -1))
	encode, decode, path := json.Marshal, json.Unmarshal, []int(nil)
	var made any = &order{}
	switch asked.Format {
	case "avro":
		schema := must(avro.Parse(asked.Schema))
		encode = func(data any) ([]byte, error) { return avro.Marshal(schema, data) }
		decode = func(text []byte, data any) error { return avro.Unmarshal(schema, text, data) }
	case "protobuf":
		var file descriptorpb.FileDescriptorProto
		check(proto.Unmarshal(asked.Descriptor, &file))
		messages := must(protodesc.NewFile(&file, nil)).Messages()
		var kind protoreflect.MessageDescriptor
		for _, name := range strings.Split(asked.Message, ".")[1:] {
			kind = messages.ByName(protoreflect.Name(name))
			messages, path = kind.Messages(), append(path, kind.Index())
		}
		made = dynamicpb.NewMessage(kind)
		encode = func(data any) ([]byte, error) { return proto.Marshal(data.(proto.Message)) }
		decode = func(text []byte, data any) error { return proto.Unmarshal(text, data.(proto.Message)) }
	}
	var serde sr.Serde
	serde.Register(latest.ID, made, sr.EncodeFn(encode), sr.DecodeFn(decode), sr.Index(path...))
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var given struct {
			D json.RawMessage
			V []byte
		}
		check(json.Unmarshal(lines.Bytes(), &given))
		answer := map[string]any{}
		message, isMessage := made.(proto.Message)
		switch {
		case given.D != nil && isMessage:
			check(protojson.Unmarshal(given.D, message))
			answer["v"], answer["h"] = must(serde.Encode(made)), [][]any{}
		case given.D != nil:
			check(json.Unmarshal(given.D, made))
			answer["v"], answer["h"] = must(serde.Encode(made)), [][]any{}
		case isMessage:
			check(serde.Decode(given.V, made))
			answer["d"] = json.RawMessage(must(protojson.Marshal(message)))
		default:
			check(serde.Decode(given.V, made))
			answer["d"] = made
		}
		fmt.Println(string(must(json.Marshal(answer))))
	}
}
