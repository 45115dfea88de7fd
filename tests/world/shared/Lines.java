import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** Lines that all programs in Java share: what they are asked, given, and print. */
final class Lines {
    private static final Pattern PAIR = Pattern.compile("\\[\"([^\"]*)\", (?:null|\"([^\"]*)\")\\]");
    private static long last = System.nanoTime();

    /** The text or number of a name; null where it is null or absent. */
    static String word(String json, String name) {
        Matcher found = Pattern.compile("\"" + name + "\": (?:\"([^\"]*)\"|(-?\\d+))").matcher(json);
        return !found.find() ? null : found.group(1) != null ? found.group(1) : found.group(2);
    }

    private static byte[] content(String text) {
        return text == null ? null : Base64.getDecoder().decode(text);
    }

    private static String text(byte[] content) {
        return content == null ? "null" : '"' + Base64.getEncoder().encodeToString(content) + '"';
    }

    static ProducerRecord<byte[], byte[]> given(String topic, String line) {
        String partition = word(line, "p");
        String time = word(line, "t");
        List<Header> headers = new ArrayList<>();
        for (Matcher pair = PAIR.matcher(line); pair.find(); )
            headers.add(new RecordHeader(pair.group(1), content(pair.group(2))));
        return new ProducerRecord<>(topic, partition == null ? null : Integer.valueOf(partition),
            time == null ? null : Long.valueOf(time), content(word(line, "k")), content(word(line, "v")),
            headers);
    }

    static synchronized void show(ConsumerRecord<byte[], byte[]> record) {
        List<String> headers = new ArrayList<>();
        for (Header header : record.headers())
            headers.add("[\"" + header.key() + "\", " + text(header.value()) + "]");
        System.out.println("{\"p\": " + record.partition() + ", \"o\": " + record.offset()
            + ", \"k\": " + text(record.key()) + ", \"v\": " + text(record.value())
            + ", \"h\": " + headers + ", \"t\": " + record.timestamp() + "}");
        last = System.nanoTime();
    }

    static void refused(Exception why) {
        System.out.println("{\"refused\": \"" + why.getClass().getSimpleName() + "\"}");
    }

    /** Whether no record was shown for so long; the first may take longer, where groups join. */
    static synchronized boolean isIdle(String asked, long firstS) {
        if (firstS > 0)
            last = System.nanoTime() + (firstS - Long.parseLong(word(asked, "idle_s"))) * 1_000_000_000L;
        return System.nanoTime() - last > Long.parseLong(word(asked, "idle_s")) * 1_000_000_000L;
    }
}
