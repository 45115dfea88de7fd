import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A consumer group of Java's client: BROKERS TOPIC GROUP earliest|latest COUNT [classic|consumer]. */
class JavaGroups {
    public static void main(String[] args) {
        Map<String, Object> properties = Map.of(
            "bootstrap.servers", args[0], "group.id", args[2], "auto.offset.reset", args[3],
            "group.protocol", args.length > 5 ? args[5] : "classic",
            "key.deserializer", ByteArrayDeserializer.class,
            "value.deserializer", ByteArrayDeserializer.class);
        int left = Integer.parseInt(args[4]);
        try (var consumer = new KafkaConsumer<byte[], byte[]>(properties)) {
            consumer.subscribe(List.of(args[1]));
            while (left > 0) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    System.out.println(record.partition() + " " + record.offset());
                    left--;
                }
            }
        }
    }
}
