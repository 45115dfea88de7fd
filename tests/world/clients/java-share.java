import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A share group: where it begins and its level are settings of the group on the broker. */
class Main {
    public static void main(String[] words) throws Exception {
        String asked = words[1];
        String brokers = Lines.word(asked, "bootstrap");
        String group = UUID.randomUUID().toString();
        List<AlterConfigOp> settings = new ArrayList<>();
        settings.add(set("share.auto.offset.reset", "earliest"));
        if (!Lines.word(asked, "level").equals("default"))
            settings.add(set("share.isolation.level", Lines.word(asked, "level")));
        try (var admin = Admin.create(Map.of("bootstrap.servers", brokers))) {
            var resource = new ConfigResource(ConfigResource.Type.GROUP, group);
            admin.incrementalAlterConfigs(Map.of(resource, settings)).all().get();
        }
        Map<String, Object> properties = Map.of("bootstrap.servers", brokers, "group.id", group);
        try (var consumer = new KafkaShareConsumer<>(
                properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(Lines.word(asked, "topic")));
            for (Lines.isIdle(asked, 20); !Lines.isIdle(asked, 0); ) // each poll accepts the last one's
                consumer.poll(Duration.ofMillis(200)).forEach(Lines::show);
        }
    }

    static AlterConfigOp set(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    }
}
