// The CloudEvents SDK for Java: its serializer, in both modes.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.cloudevents.core.builder.CloudEventBuilder;
import io.cloudevents.jackson.JsonFormat;
import io.cloudevents.kafka.CloudEventSerializer;
import java.net.URI;
import java.time.OffsetDateTime;
import java.util.Map;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;

public class Main {
    public static void main(String[] words) throws Exception {
        var json = new ObjectMapper();
        JsonNode asked = json.readTree(words[1]);
        JsonNode given = asked.get("attributes");
        var event = CloudEventBuilder.v1()
            .withId(given.get("id").asText())
            .withSource(URI.create(given.get("source").asText()))
            .withType(given.get("type").asText())
            .withSubject(given.get("subject").asText())
            .withTime(OffsetDateTime.parse(given.get("time").asText()))
            .withData("application/json", json.writeValueAsBytes(asked.get("data")))
            .build();
        Map<String, Map<String, ?>> modes = Map.of(
            "binary", Map.of(CloudEventSerializer.ENCODING_CONFIG, "BINARY"),
            "structured", Map.of(CloudEventSerializer.ENCODING_CONFIG, "STRUCTURED",
                CloudEventSerializer.EVENT_FORMAT_CONFIG, JsonFormat.CONTENT_TYPE));
        for (var mode : modes.entrySet()) {
            try (var serializer = new CloudEventSerializer()) {
                serializer.configure(mode.getValue(), false);
                var headers = new RecordHeaders();
                byte[] value = serializer.serialize("world", headers, event);
                var line = json.createObjectNode().put("form", mode.getKey()).put("v", value);
                line.putNull("k");
                var pairs = line.putArray("h");
                for (Header one : headers) pairs.addArray().add(one.key()).add(one.value());
                System.out.println(line);
            }
        }
    }
}
