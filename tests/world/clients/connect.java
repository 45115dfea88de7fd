import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.cli.ConnectStandalone;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/** A standalone worker of Kafka Connect: a sink that prints, a source of standard input; bytes pass. */
public class Main {
    static String asked;
    static List<String> lines;
    static CountDownLatch unwritten;

    public static void main(String[] words) throws Exception {
        asked = words[1];
        var settings = new ArrayList<>(List.of("name=" + UUID.randomUUID(), "tasks.max=1"));
        if (words[0].equals("write")) {
            lines = new BufferedReader(new InputStreamReader(System.in)).lines().toList();
            unwritten = new CountDownLatch(lines.size());
            settings.add("connector.class=Main$Source");
            start(settings);
            if (!unwritten.await(30, TimeUnit.SECONDS))
                Lines.refused(new IllegalStateException());
        } else {
            String group = Lines.word(asked, "group");
            String level = group == null ? Lines.word(asked, "level") : "read_committed";
            settings.addAll(List.of("connector.class=Main$Sink", "topics=" + Lines.word(asked, "topic")));
            if (group != null)
                settings.add("consumer.override.group.id=" + group);
            if (!level.equals("default"))
                settings.add("consumer.override.isolation.level=" + level);
            start(settings);
            for (Lines.isIdle(asked, 70); !Lines.isIdle(asked, 0); ) // until the task is open
                Thread.sleep(100);
        }
        System.exit(0); // its hook stops the task, which commits
    }

    static void start(List<String> connector) throws IOException {
        Path folder = Files.createTempDirectory("connect");
        String bytes = "org.apache.kafka.connect.converters.ByteArrayConverter";
        String worker = written(folder, "worker", List.of("bootstrap.servers=" + Lines.word(asked, "bootstrap"),
            "listeners=http://127.0.0.1:0", "offset.storage.file.filename=" + folder.resolve("offsets"),
            "key.converter=" + bytes, "value.converter=" + bytes, "header.converter=" + bytes));
        String plugin = written(folder, "connector", connector);
        new Thread(() -> ConnectStandalone.main(new String[] {worker, plugin})).start();
    }

    static String written(Path folder, String name, List<String> lines) throws IOException {
        return Files.write(folder.resolve(name + ".properties"), lines).toString();
    }

    public static class Sink extends SinkConnector {
        public ConfigDef config() { return new ConfigDef(); }
        public void start(Map<String, String> settings) {}
        public void stop() {}
        public String version() { return "1"; }
        public Class<? extends Task> taskClass() { return Shown.class; }
        public List<Map<String, String>> taskConfigs(int most) { return List.of(Map.of()); }
    }

    public static class Shown extends SinkTask {
        public void start(Map<String, String> settings) {}
        public void stop() {}
        public String version() { return "1"; }

        public void open(Collection<TopicPartition> partitions) {
            Lines.isIdle(asked, 10);
        }

        public void put(Collection<SinkRecord> records) {
            for (SinkRecord record : records) {
                var headers = new RecordHeaders();
                record.headers().forEach(header -> headers.add(header.key(), (byte[]) header.value()));
                Lines.show(new ConsumerRecord<>(record.topic(), record.kafkaPartition(), record.kafkaOffset(),
                    record.timestamp(), TimestampType.CREATE_TIME, 0, 0, (byte[]) record.key(),
                    (byte[]) record.value(), headers, Optional.empty()));
            }
        }
    }

    public static class Source extends SourceConnector {
        public ConfigDef config() { return new ConfigDef(); }
        public void start(Map<String, String> settings) {}
        public void stop() {}
        public String version() { return "1"; }
        public Class<? extends Task> taskClass() { return Given.class; }
        public List<Map<String, String>> taskConfigs(int most) { return List.of(Map.of()); }
    }

    public static class Given extends SourceTask {
        private boolean isGiven;

        public void start(Map<String, String> settings) {}
        public void stop() {}
        public String version() { return "1"; }

        public List<SourceRecord> poll() throws InterruptedException {
            Thread.sleep(isGiven ? 100 : 0);
            List<SourceRecord> records = new ArrayList<>();
            for (String line : isGiven ? List.<String>of() : lines) {
                var given = Lines.given(Lines.word(asked, "topic"), line);
                records.add(new SourceRecord(Map.of(), Map.of(), given.topic(), given.partition(), null,
                    given.key(), null, given.value(), given.timestamp()));
            }
            isGiven = true;
            return records;
        }

        public void commitRecord(SourceRecord record, RecordMetadata place) {
            unwritten.countDown();
        }
    }
}
