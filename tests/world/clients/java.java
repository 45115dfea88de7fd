import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Java's own client with its defaults; words before the action are its further properties. */
class Main {
    public static void main(String[] words) throws Exception {
        String action = words[words.length - 2];
        String asked = words[words.length - 1];
        Map<String, Object> properties = new HashMap<>();
        for (int at = 0; at < words.length - 2; at++)
            properties.put(words[at].split("=")[0], words[at].split("=")[1]);
        properties.put("bootstrap.servers", Lines.word(asked, "bootstrap"));
        switch (action) {
            case "read" -> read(asked);
            case "group" -> group(asked, properties);
            default -> write(asked, properties);
        }
    }

    static KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> properties) {
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void read(String asked) {
        Map<String, Object> properties = new HashMap<>();
        properties.put("bootstrap.servers", Lines.word(asked, "bootstrap"));
        if (!Lines.word(asked, "level").equals("default"))
            properties.put("isolation.level", Lines.word(asked, "level"));
        try (var consumer = consumer(properties)) {
            var partitions = consumer.partitionsFor(Lines.word(asked, "topic")).stream()
                .map(one -> new TopicPartition(one.topic(), one.partition())).toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            show(consumer, asked, 5);
        }
    }

    static void group(String asked, Map<String, Object> properties) {
        properties.put("group.id", Lines.word(asked, "group"));
        properties.put("auto.offset.reset", "earliest");
        properties.put("isolation.level", "read_committed");
        try (var consumer = consumer(properties)) {
            consumer.subscribe(List.of(Lines.word(asked, "topic")));
            show(consumer, asked, 15);
        } // commits where it stands: enable.auto.commit is the default
    }

    static void show(KafkaConsumer<byte[], byte[]> consumer, String asked, long firstS) {
        Lines.isIdle(asked, firstS);
        while (!Lines.isIdle(asked, 0))
            consumer.poll(Duration.ofMillis(200)).forEach(Lines::show);
    }

    static void write(String asked, Map<String, Object> properties) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        try (var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (String line; (line = lines.readLine()) != null; ) {
                try {
                    producer.send(Lines.given(Lines.word(asked, "topic"), line), (place, failure) -> {
                        if (failure != null)
                            Lines.refused(failure);
                    });
                } catch (IllegalArgumentException failure) {
                    Lines.refused(failure);
                }
            }
        }
    }
}
