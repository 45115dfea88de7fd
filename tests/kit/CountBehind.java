import java.io.FileInputStream;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Counts what lies behind a group's offsets: PROPERTIES, then GROUP TOPIC as often as wanted.
 *
 * A line for each partition: topic, partition, committed records, records of aborted transactions,
 * offsets without a record, all three up to the last stable offset, and offsets after that one. A
 * group without an offset, or with one after the end, begins at the start of the log.
 */
class CountBehind {
    static final Duration WAIT = Duration.ofMillis(200);

    public static void main(String[] args) throws Exception {
        for (int at = 1; at < args.length; at += 2) {
            try (var committed = consumer(args[0], args[at], "read_committed");
                 var all = consumer(args[0], args[at], "read_uncommitted")) {
                for (PartitionInfo one : committed.partitionsFor(args[at + 1])) {
                    count(committed, all, new TopicPartition(one.topic(), one.partition()));
                }
            }
        }
    }

    static void count(KafkaConsumer<byte[], byte[]> committed, KafkaConsumer<byte[], byte[]> all,
                      TopicPartition place) {
        var only = Set.of(place);
        long start = committed.beginningOffsets(only).get(place);
        long stable = committed.endOffsets(only).get(place);
        long end = all.endOffsets(only).get(place);
        var offset = committed.committed(only).get(place);
        long from = offset == null || offset.offset() > end ? start : Math.max(start, offset.offset());
        long records = read(committed, place, from, stable);
        long data = read(all, place, from, stable);
        System.out.printf("%s %d %d %d %d %d%n", place.topic(), place.partition(), records,
            data - records, Math.max(0, stable - from) - data, end - Math.max(stable, from));
    }

    static long read(KafkaConsumer<byte[], byte[]> consumer, TopicPartition place, long from, long to) {
        long found = 0;
        consumer.assign(List.of(place));
        consumer.seek(place, from);
        while (consumer.position(place) < to) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(WAIT)) {
                if (record.offset() < to) found++;
            }
        }
        return found;
    }

    static KafkaConsumer<byte[], byte[]> consumer(String file, String group, String isolation)
            throws Exception {
        var properties = new Properties();
        try (var input = new FileInputStream(file)) {
            properties.load(input);
        }
        var bytes = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
        properties.put("key.deserializer", bytes);
        properties.put("value.deserializer", bytes);
        properties.put("group.id", group);
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "none");
        properties.put("isolation.level", isolation);
        return new KafkaConsumer<>(properties);
    }
}
