import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;

/** An application of Kafka Streams, exactly once: BROKERS TOPIC GROUP earliest|latest COUNT. */
class StreamsGroups {
    public static void main(String[] args) throws InterruptedException {
        var left = new CountDownLatch(Integer.parseInt(args[4]));
        var builder = new StreamsBuilder();
        builder.<byte[], byte[]>stream(args[1]).process(() -> new Processor<byte[], byte[], Void, Void>() {
            private ProcessorContext<Void, Void> context;

            public void init(ProcessorContext<Void, Void> given) {
                context = given;
            }

            public void process(Record<byte[], byte[]> record) {
                var place = context.recordMetadata().get();
                System.out.println(place.partition() + " " + place.offset());
                left.countDown();
            }
        });
        var properties = new Properties();
        properties.putAll(Map.of(
            "bootstrap.servers", args[0], "application.id", args[2], "auto.offset.reset", args[3],
            "processing.guarantee", "exactly_once_v2", "state.dir", System.getProperty("java.io.tmpdir"),
            "default.key.serde", Serdes.ByteArraySerde.class,
            "default.value.serde", Serdes.ByteArraySerde.class));
        var streams = new KafkaStreams(builder.build(), properties);
        streams.start();
        left.await();
        streams.close(new KafkaStreams.CloseOptions().leaveGroup(true));
    }
}
