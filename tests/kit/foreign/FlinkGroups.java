import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetResetStrategy;

/** A job of Flink's KafkaSource on a local cluster: BROKERS TOPIC GROUP earliest|latest COUNT. */
class FlinkGroups {
    static CountDownLatch left;

    static class Places implements KafkaRecordDeserializationSchema<String> {
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<String> out) {
            out.collect(record.partition() + " " + record.offset());
        }

        public TypeInformation<String> getProducedType() {
            return Types.STRING;
        }
    }

    public static void main(String[] args) throws Exception {
        left = new CountDownLatch(Integer.parseInt(args[4]));
        var reset = OffsetResetStrategy.valueOf(args[3].toUpperCase());
        var begins = OffsetsInitializer.committedOffsets(reset);
        var source = KafkaSource.<String>builder().setBootstrapServers(args[0]).setTopics(args[1])
            .setGroupId(args[2]).setStartingOffsets(begins).setDeserializer(new Places()).build();
        var environment = StreamExecutionEnvironment.createLocalEnvironment(1);
        environment.enableCheckpointing(Long.getLong("interval", 500));
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "source").map(place -> {
            System.out.println(place);
            left.countDown();
            return place;
        }).returns(Types.STRING).sinkTo(new org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink<>());
        var job = environment.executeAsync();
        left.await();
        Thread.sleep(Duration.ofSeconds(Integer.getInteger("wait", 3)).toMillis()); // a checkpoint commits the offsets
        if (Boolean.getBoolean("savepoint")) {
            var folder = java.nio.file.Files.createTempDirectory("savepoint").toUri().toString();
            var kind = org.apache.flink.core.execution.SavepointFormatType.CANONICAL;
            System.err.println("savepoint " + job.stopWithSavepoint(false, folder, kind).get());
        } else {
            job.cancel().get();
        }
        System.exit(0);
    }
}
