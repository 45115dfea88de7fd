import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import org.apache.kafka.tools.consumer.group.ConsumerGroupCommand;

/** kafka-consumer-groups --describe: the sum of its column LAG over a topic. */
class Main {
    public static void main(String[] words) throws Exception {
        String asked = words[1];
        PrintStream out = System.out;
        var said = new ByteArrayOutputStream();
        System.setOut(new PrintStream(said));
        ConsumerGroupCommand.main(new String[] {"--bootstrap-server", Lines.word(asked, "bootstrap"),
            "--describe", "--group", Lines.word(asked, "group")});
        long lag = 0;
        int column = -1;
        for (String line : said.toString().split("\n")) {
            var cells = java.util.List.of(line.trim().split("\\s+"));
            if (cells.contains("LAG"))
                column = cells.indexOf("LAG");
            else if (column >= 0 && cells.size() > column && cells.get(1).equals(Lines.word(asked, "topic")))
                lag += cells.get(column).equals("-") ? 0 : Long.parseLong(cells.get(column));
        }
        if (column < 0) {
            String first = said.toString().strip().split("\n")[0];
            System.err.println(first.replace(Lines.word(asked, "group"), "GROUP"));
            System.exit(1);
        }
        out.println("{\"lag\": " + lag + "}");
    }
}
