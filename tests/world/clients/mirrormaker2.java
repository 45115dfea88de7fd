import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.connect.cli.ConnectStandalone;

/** MirrorMaker 2's source connector: copies the topic to the same cluster; the copy is shown. */
public class Main {
    public static void main(String[] words) throws Exception {
        String asked = words[1];
        String alias = "m" + UUID.randomUUID().toString().substring(0, 8);
        String brokers = Lines.word(asked, "bootstrap");
        String topic = Lines.word(asked, "topic");
        Path folder = Files.createTempDirectory("mirror");
        String bytes = "org.apache.kafka.connect.converters.ByteArrayConverter";
        String worker = written(folder, "worker", List.of("bootstrap.servers=" + brokers,
            "listeners=http://127.0.0.1:0", "offset.storage.file.filename=" + folder.resolve("offsets"),
            "key.converter=" + bytes, "value.converter=" + bytes, "header.converter=" + bytes));
        var settings = new ArrayList<>(List.of("name=" + alias, "tasks.max=1",
            "connector.class=org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "source.cluster.alias=" + alias, "target.cluster.alias=here", "topics=" + topic,
            "source.cluster.bootstrap.servers=" + brokers, "target.cluster.bootstrap.servers=" + brokers,
            "replication.factor=1", "offset-syncs.topic.replication.factor=1", "sync.topic.acls.enabled=false"));
        if (!Lines.word(asked, "level").equals("default"))
            settings.add("source.consumer.isolation.level=" + Lines.word(asked, "level"));
        String connector = written(folder, "connector", settings);
        new Thread(() -> ConnectStandalone.main(new String[] {worker, connector})).start();
        show(brokers, alias + "." + topic, asked);
        System.exit(0);
    }

    static String written(Path folder, String name, List<String> lines) throws Exception {
        return Files.write(folder.resolve(name + ".properties"), lines).toString();
    }

    static void show(String brokers, String copy, String asked) throws Exception {
        Map<String, Object> properties = Map.of("bootstrap.servers", brokers, "allow.auto.create.topics", false);
        try (var consumer = new KafkaConsumer<>(
                properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            Lines.isIdle(asked, 70);
            while (!consumer.listTopics().containsKey(copy) && !Lines.isIdle(asked, 0))
                Thread.sleep(200);
            var partitions = consumer.partitionsFor(copy).stream()
                .map(one -> new TopicPartition(copy, one.partition())).toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Lines.isIdle(asked, 15);
            while (!Lines.isIdle(asked, 0))
                consumer.poll(Duration.ofMillis(200)).forEach(Lines::show);
        }
    }
}
