import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.UUID;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetResetStrategy;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Jobs of Flink's KafkaSource and KafkaSink on a local cluster. */
class Main {
    static class Shown implements KafkaRecordDeserializationSchema<String> {
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<String> out) {
            Lines.show(record);
            out.collect("");
        }

        public TypeInformation<String> getProducedType() {
            return Types.STRING;
        }
    }

    record Given(String topic) implements KafkaRecordSerializationSchema<String> {
        public ProducerRecord<byte[], byte[]> serialize(String line, KafkaSinkContext context, Long time) {
            return Lines.given(topic, line);
        }
    }

    public static void main(String[] words) throws Exception {
        String asked = words[1];
        var environment = StreamExecutionEnvironment.createLocalEnvironment(1);
        if (words[0].equals("write"))
            write(environment, asked);
        else
            read(environment, asked, Lines.word(asked, "group"));
        System.exit(0);
    }

    static void read(StreamExecutionEnvironment environment, String asked, String group) throws Exception {
        var source = KafkaSource.<String>builder()
            .setBootstrapServers(Lines.word(asked, "bootstrap")).setTopics(Lines.word(asked, "topic"))
            .setGroupId(group == null ? UUID.randomUUID().toString() : group)
            .setStartingOffsets(OffsetsInitializer.committedOffsets(OffsetResetStrategy.EARLIEST))
            .setDeserializer(new Shown());
        String level = group == null ? Lines.word(asked, "level") : "read_committed";
        if (!level.equals("default"))
            source.setProperty("isolation.level", level);
        environment.enableCheckpointing(500); // offsets are committed with checkpoints
        environment.fromSource(source.build(), WatermarkStrategy.noWatermarks(), "source")
            .sinkTo(new DiscardingSink<>());
        var job = environment.executeAsync();
        for (Lines.isIdle(asked, 25); !Lines.isIdle(asked, 0); )
            Thread.sleep(100);
        job.cancel().get();
    }

    static void write(StreamExecutionEnvironment environment, String asked) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in)).lines().toList();
        boolean isOnce = Lines.word(asked, "variant").equals("exactly-once");
        var sink = KafkaSink.<String>builder()
            .setBootstrapServers(Lines.word(asked, "bootstrap"))
            .setRecordSerializer(new Given(Lines.word(asked, "topic")));
        if (isOnce)
            sink.setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setProperty("transaction.timeout.ms", "60000")
                .setTransactionalIdPrefix(Lines.word(asked, "topic"));
        environment.enableCheckpointing(500);
        environment.fromData(lines).sinkTo(sink.build());
        environment.execute();
    }
}
