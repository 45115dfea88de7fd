import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Kafka Streams with exactly_once_v2: records go through, two headers are added. With {@code
 * --counted=1} outputs end with how often their key has come: RocksDB, a changelog and no cache.
 *
 * <p>With {@code --warm-target} another topic is copied to that first, again and again for {@code
 * --warm-s}, by the same classes in the same process, so that the compiler of the JVM has done its
 * work. Then it writes the line
 * {@code warm CPU_NANOSECONDS}, waits for a line on standard input, and copies what is measured.
 */
public final class Copier {
    private static final Map<String, String> ASKED = new HashMap<>();
    private static boolean COUNTED;

    private Copier() {}

    /** Adds what the service adds, and counts. */
    static final class Stamp extends ContextualProcessor<byte[], byte[], byte[], byte[]> {
        private final AtomicLong left;
        private final CountDownLatch done;
        private final boolean headers = ASKED.get("headers").equals("1");
        private KeyValueStore<byte[], Long> counts;

        Stamp(AtomicLong left, CountDownLatch done) {
            this.left = left;
            this.done = done;
        }

        @Override
        public void init(ProcessorContext<byte[], byte[]> context) {
            super.init(context);
            counts = COUNTED ? context.getStateStore("counts") : null;
        }

        @Override
        public void process(Record<byte[], byte[]> record) {
            if (headers) {
                RecordMetadata where = context().recordMetadata().orElseThrow();
                String source = where.topic() + '/' + where.partition() + '/' + where.offset();
                Headers found = record.headers();
                found.add("hapax-id", found.lastHeader("message-id").value());
                found.add("hapax-source", source.getBytes(java.nio.charset.StandardCharsets.UTF_8));
            }
            context().forward(counts == null ? record : record.withValue(counted(record)));
            if (left.decrementAndGet() == 0) {
                done.countDown();
            }
        }

        private byte[] counted(Record<byte[], byte[]> record) {
            Long before = counts.get(record.key());
            long count = before == null ? 1 : before + 1;
            counts.put(record.key(), count);
            byte[] value = record.value();
            return ByteBuffer.allocate(value.length + 8).put(value).putLong(count).array();
        }
    }

    private static Properties settings(String group) {
        Properties settings = new Properties();
        settings.put("application.id", group);
        settings.put("bootstrap.servers", ASKED.get("servers"));
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("default.key.serde", Serdes.ByteArray().getClass());
        settings.put("default.value.serde", Serdes.ByteArray().getClass());
        settings.put("auto.offset.reset", "earliest");
        settings.put("state.dir", ASKED.get("state"));
        settings.put("commit.interval.ms", ASKED.get("interval-ms"));
        if (ASKED.get("tuned").equals("1")) {
            // Large requests and batches, few turns: what its documentation advises for throughput.
            settings.put("max.poll.records", "10000");
            settings.put("max.partition.fetch.bytes", "4194304");
            settings.put("buffered.records.per.partition", "10000");
            settings.put("producer.batch.size", "1048576");
            settings.put("producer.buffer.memory", "134217728");
            settings.put("producer.linger.ms", "5");
            settings.put("poll.ms", "10");
            settings.put("statestore.cache.max.bytes", "0");
        }
        return settings;
    }

    private static void copy(
            String group, String source, String target, long records, CountDownLatch stopped)
            throws Exception {
        CountDownLatch done = new CountDownLatch(1);
        AtomicLong left = new AtomicLong(records > 0 ? records : -1);
        StreamsBuilder builder = new StreamsBuilder();
        if (COUNTED) {
            builder.addStateStore(Stores.keyValueStoreBuilder(
                            Stores.persistentKeyValueStore("counts"), Serdes.ByteArray(), Serdes.Long())
                    .withCachingDisabled());
        }
        builder.<byte[], byte[]>stream(source)
                .process(() -> new Stamp(left, done), COUNTED ? new String[] {"counts"} : new String[0])
                .to(target);
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings(group))) {
            streams.setUncaughtExceptionHandler(
                    error -> {
                        error.printStackTrace();
                        Runtime.getRuntime().halt(1);
                        return null;
                    });
            streams.start();
            (records > 0 ? done : stopped).await();
        }
    }

    /** Copies once, or twice where a topic for warming up is named. */
    public static void main(String[] arguments) throws Exception {
        Arrays.stream(arguments).forEach(each -> {
            int at = each.indexOf('=');
            ASKED.put(each.substring(2, at), each.substring(at + 1));
        });
        COUNTED = ASKED.get("counted").equals("1");
        CountDownLatch stopped = new CountDownLatch(1);
        CountDownLatch left = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopped.countDown();
            try {
                left.await();
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }));
        if (ASKED.containsKey("warm-target")) {
            long until = System.nanoTime() + Long.parseLong(ASKED.get("warm-s")) * 1_000_000_000L;
            long inWarm = Long.parseLong(ASKED.get("warm-records"));
            for (int turn = 0; turn == 0 || System.nanoTime() < until; turn++) {
                String group = ASKED.get("group") + "-warm-" + turn;
                copy(group, ASKED.get("warm-source"), ASKED.get("warm-target"), inWarm, stopped);
            }
            var process = (com.sun.management.OperatingSystemMXBean)
                    ManagementFactory.getOperatingSystemMXBean();
            System.out.println("warm " + process.getProcessCpuTime());
            System.out.flush();
            System.in.read();
        }
        long records = Long.parseLong(ASKED.get("records"));
        copy(ASKED.get("group"), ASKED.get("source"), ASKED.get("target"), records, stopped);
        if (records == 0) {
            Runtime.getRuntime().halt(0);  // SIGTERM would be the exit code otherwise
        }
        left.countDown();
    }
}
