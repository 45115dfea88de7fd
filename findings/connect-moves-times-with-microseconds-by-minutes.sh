#!/usr/bin/env bash
# Kafka Connect's TimestampConverter (4.3.1) reads the digits after the second as a count of
# milliseconds, however many there are: with microseconds, as Python, Postgres and Spark write them, a
# time is moved by up to 16 minutes and 39 seconds, with one digit to a wrong millisecond. Its pattern
# SSSSSS promises six digits and does not help. Back into text the six digits of the pattern are
# milliseconds with zeros in front.
# Expected: 12:00:00.123456 is at 12:00:00.123, or is refused.
# Seen, by the pattern yyyy-MM-dd HH:mm:ss.SSSSSS:
#   2026-07-01 12:00:00.123456 is 2026-07-01T12:02:03.456Z
#   2026-07-01 12:00:00.999999 is 2026-07-01T12:16:39.999Z
#   2026-07-01 12:00:00.5 is 2026-07-01T12:00:00.005Z
#   2026-07-01T12:00:00.123Z is 2026-07-01 12:00:00.000123
# Needs Java 17 or newer and Maven.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat > pom.xml <<'END_OF_POM'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
  <groupId>a</groupId><artifactId>a</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies><dependency><groupId>org.apache.kafka</groupId><artifactId>connect-transforms</artifactId>
  <version>4.3.1</version></dependency></dependencies></project>
END_OF_POM
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DoutputDirectory=jars > maven.log 2>&1
cat > Ask.java <<'END_OF_PROGRAM'
import java.time.Instant;
import java.util.Date;
import java.util.Map;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.TimestampConverter;

public class Ask {
  static Object converted(String target, Object value) {
    TimestampConverter.Value<SourceRecord> converter = new TimestampConverter.Value<>();
    converter.configure(Map.of("target.type", target, "format", "yyyy-MM-dd HH:mm:ss.SSSSSS"));
    return converter.apply(new SourceRecord(null, null, "payments", null, value)).value();
  }

  public static void main(String[] names) {
    for (String digits : new String[] {"123456", "999999", "5"}) {
      String text = "2026-07-01 12:00:00." + digits;
      System.out.println(text + " is " + ((Date) converted("Timestamp", text)).toInstant());
    }
    Instant at = Instant.parse("2026-07-01T12:00:00.123Z");
    System.out.println(at + " is " + converted("string", Date.from(at)));
  }
}
END_OF_PROGRAM
java -cp 'jars/*' Ask.java 2> java.log | tee seen
diff seen - <<'END_OF_SEEN'
2026-07-01 12:00:00.123456 is 2026-07-01T12:02:03.456Z
2026-07-01 12:00:00.999999 is 2026-07-01T12:16:39.999Z
2026-07-01 12:00:00.5 is 2026-07-01T12:00:00.005Z
2026-07-01T12:00:00.123Z is 2026-07-01 12:00:00.000123
END_OF_SEEN
