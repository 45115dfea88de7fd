// The serdes of Apicurio Registry: "8-bytes", "headers" and "indexes" are settings, "prefix" none.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.Message;
import com.google.protobuf.util.JsonFormat;
import io.apicurio.registry.serde.avro.AvroKafkaDeserializer;
import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import io.apicurio.registry.serde.jsonschema.JsonSchemaKafkaDeserializer;
import io.apicurio.registry.serde.jsonschema.JsonSchemaKafkaSerializer;
import io.apicurio.registry.serde.protobuf.ProtobufKafkaDeserializer;
import io.apicurio.registry.serde.protobuf.ProtobufKafkaSerializer;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serializer;

public class Main {
    static final ObjectMapper JSON = new ObjectMapper();
    static JsonNode asked;

    public static void main(String[] words) throws Exception {
        asked = JSON.readTree(words[1]);
        var lines = new BufferedReader(new InputStreamReader(System.in));
        try {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                JsonNode given = JSON.readTree(line);
                System.out.println(given.has("d") ? written(given.get("d")) : read(given));
            }
        } catch (Throwable error) {
            System.err.println(error.getClass().getSimpleName() + ": " + error.getMessage());
            System.exit(1);
        }
        System.exit(0);
    }

    static Map<String, Object> settings() {
        Map<String, Object> made = new HashMap<>();
        made.put("apicurio.registry.url", asked.get("url").asText().replaceAll("/ccompat/v7", "/registry/v3"));
        made.put("apicurio.registry.artifact.artifact-id", asked.get("topic").asText() + "-value");
        made.put("apicurio.registry.find-latest", true);
        switch (asked.get("form").asText()) {
            case "8-bytes" -> made.put("apicurio.registry.id-handler", "io.apicurio.registry.serde.Legacy8ByteIdHandler");
            case "headers" -> made.put("apicurio.registry.headers.enabled", true);
            case "indexes" -> {
                for (String way : List.of("send", "read")) {
                    made.put("apicurio.registry.serde." + way + "-type-ref", false);
                    made.put("apicurio.registry.serde." + way + "-indexes", true);
                }
            }
            default -> { }
        }
        return made;
    }

    static String written(JsonNode data) throws Exception {
        String format = asked.get("format").asText();
        Serializer<?> serializer = switch (format) {
            case "avro" -> new AvroKafkaSerializer<Object>();
            case "json-schema" -> new JsonSchemaKafkaSerializer<Object>();
            default -> new ProtobufKafkaSerializer<Message>();
        };
        serializer.configure(settings(), false);
        Object value = switch (format) {
            case "avro" -> record(data);
            case "json-schema" -> data;
            default -> {
                var made = DynamicMessage.newBuilder(message());
                JsonFormat.parser().merge(data.toString(), made);
                yield made.build();
            }
        };
        var headers = new RecordHeaders();
        @SuppressWarnings("unchecked")
        byte[] bytes = ((Serializer<Object>) serializer).serialize(asked.get("topic").asText(), headers, value);
        ObjectNode line = JSON.createObjectNode().put("v", bytes);
        var pairs = line.putArray("h");
        for (Header one : headers) pairs.addArray().add(one.key()).add(one.value());
        return line.toString();
    }

    static String read(JsonNode given) throws Exception {
        Deserializer<?> deserializer = switch (asked.get("format").asText()) {
            case "avro" -> new AvroKafkaDeserializer<Object>();
            case "json-schema" -> new JsonSchemaKafkaDeserializer<Object>();
            default -> new ProtobufKafkaDeserializer<Message>();
        };
        deserializer.configure(settings(), false);
        var headers = new RecordHeaders();
        for (JsonNode one : given.get("h")) headers.add(one.get(0).asText(), one.get(1).binaryValue());
        Object value = deserializer.deserialize(asked.get("topic").asText(), headers, given.get("v").binaryValue());
        String data = value instanceof Message found
            ? JsonFormat.printer().print(found)
            : value instanceof JsonNode || value instanceof GenericData.Record ? value.toString() : JSON.writeValueAsString(value);
        return JSON.createObjectNode().set("d", JSON.readTree(data)).toString();
    }

    static Object record(JsonNode data) {
        var made = new GenericData.Record(new Schema.Parser().parse(asked.get("schema").asText()));
        made.put("id", data.get("id").asLong());
        List<String> items = new ArrayList<>();
        data.get("items").forEach(one -> items.add(one.asText()));
        made.put("items", items);
        return made;
    }

    static Descriptor message() throws Exception {
        var file = FileDescriptorProto.parseFrom(Base64.getDecoder().decode(asked.get("descriptor").asText()));
        var built = FileDescriptor.buildFrom(file, new FileDescriptor[0]);
        Descriptor found = null;
        for (String name : asked.get("message").asText().substring("world.".length()).split("[.]")) {
            found = found == null ? built.findMessageTypeByName(name) : found.findNestedTypeByName(name);
        }
        return found;
    }
}
