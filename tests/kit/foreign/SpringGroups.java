import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.KafkaMessageListenerContainer;
import org.springframework.kafka.listener.MessageListener;

/** A listener of Spring Kafka: BROKERS TOPIC GROUP earliest|latest COUNT. */
class SpringGroups {
    public static void main(String[] args) throws InterruptedException {
        var factory = new DefaultKafkaConsumerFactory<byte[], byte[]>(Map.of(
            "bootstrap.servers", args[0], "auto.offset.reset", args[3],
            "key.deserializer", ByteArrayDeserializer.class,
            "value.deserializer", ByteArrayDeserializer.class));
        var left = new CountDownLatch(Integer.parseInt(args[4]));
        var properties = new ContainerProperties(args[1]);
        properties.setGroupId(args[2]);
        properties.setMessageListener((MessageListener<byte[], byte[]>) record -> {
            System.out.println(record.partition() + " " + record.offset());
            left.countDown();
        });
        var container = new KafkaMessageListenerContainer<>(factory, properties);
        container.start();
        left.await();
        container.stop();
    }
}
