import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.KafkaMessageListenerContainer;
import org.springframework.kafka.listener.MessageListener;

/** A listener container of Spring Kafka, AckMode BATCH as by default, and its template. */
class Main {
    public static void main(String[] words) throws Exception {
        String asked = words[1];
        switch (words[0]) {
            case "read" -> listen(asked, UUID.randomUUID().toString(), Lines.word(asked, "level"));
            case "group" -> listen(asked, Lines.word(asked, "group"), "read_committed");
            default -> write(asked);
        }
    }

    static void listen(String asked, String group, String level) throws InterruptedException {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", Lines.word(asked, "bootstrap"), "auto.offset.reset", "earliest",
            "key.deserializer", ByteArrayDeserializer.class,
            "value.deserializer", ByteArrayDeserializer.class));
        if (!level.equals("default"))
            settings.put("isolation.level", level);
        var properties = new ContainerProperties(Lines.word(asked, "topic"));
        properties.setGroupId(group);
        properties.setMessageListener((MessageListener<byte[], byte[]>) Lines::show);
        var container = new KafkaMessageListenerContainer<byte[], byte[]>(
            new DefaultKafkaConsumerFactory<>(settings), properties);
        container.start();
        for (Lines.isIdle(asked, 15); !Lines.isIdle(asked, 0); )
            Thread.sleep(100);
        container.stop();
    }

    static void write(String asked) throws Exception {
        var template = new KafkaTemplate<>(new DefaultKafkaProducerFactory<byte[], byte[]>(Map.of(
            "bootstrap.servers", Lines.word(asked, "bootstrap"),
            "key.serializer", ByteArraySerializer.class, "value.serializer", ByteArraySerializer.class)));
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            try {
                template.send(Lines.given(Lines.word(asked, "topic"), line)).whenComplete((sent, failure) -> {
                    if (failure != null)
                        Lines.refused((Exception) failure);
                });
            } catch (IllegalArgumentException failure) {
                Lines.refused(failure);
            }
        }
        template.flush();
        template.destroy();
        System.exit(0);
    }
}
