#!/usr/bin/env bash
# Kafka Connect's JsonConverter (4.3.1) does not compare a payload with the type that its own schema, in
# the same message, gives it: the text "815" for an int64 is 0, a fraction loses its digits, a number for
# a string is null though the field must not be null, and an integer beyond the type is another one. A
# sink writes these values; no exception, so no dead letter. Without schemas an integer beyond 64 bits
# is another one as well.
# Expected: a DataException, which errors.tolerance and the dead letter queue are for.
# Seen:
#   int64 of "815" is 0
#   int64 of 19.99 is 19
#   int64 of {"cents":815} is 0
#   int32 of 2147483648 is -2147483648
#   int16 of 70000 is 4464
#   double of "19.99" is 0.0
#   boolean of "true" is false
#   string of 815 is null
#   without a schema 18446744073709551615 is -1
# Needs Java 17 or newer and Maven.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat > pom.xml <<'END_OF_POM'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
  <groupId>a</groupId><artifactId>a</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies><dependency><groupId>org.apache.kafka</groupId><artifactId>connect-json</artifactId>
  <version>4.3.1</version></dependency></dependencies></project>
END_OF_POM
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DoutputDirectory=jars > maven.log 2>&1
cat > Ask.java <<'END_OF_PROGRAM'
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.connect.json.JsonConverter;

public class Ask {
  static Object read(boolean schemas, String text) {
    JsonConverter converter = new JsonConverter();
    converter.configure(Map.of("converter.type", "value", "schemas.enable", String.valueOf(schemas)));
    return converter.toConnectData("payments", text.getBytes(StandardCharsets.UTF_8)).value();
  }

  public static void main(String[] names) {
    String[][] asked = {
      {"int64", "\"815\""}, {"int64", "19.99"}, {"int64", "{\"cents\":815}"}, {"int32", "2147483648"},
      {"int16", "70000"}, {"double", "\"19.99\""}, {"boolean", "\"true\""}, {"string", "815"}};
    for (String[] one : asked) {
      String schema = "{\"type\":\"" + one[0] + "\",\"optional\":false}";
      Object value = read(true, "{\"schema\":" + schema + ",\"payload\":" + one[1] + "}");
      System.out.println(one[0] + " of " + one[1] + " is " + value);
    }
    String large = "18446744073709551615";
    System.out.println("without a schema " + large + " is " + read(false, large));
  }
}
END_OF_PROGRAM
java -cp 'jars/*' Ask.java 2> java.log | tee seen
diff seen - <<'END_OF_SEEN'
int64 of "815" is 0
int64 of 19.99 is 19
int64 of {"cents":815} is 0
int32 of 2147483648 is -2147483648
int16 of 70000 is 4464
double of "19.99" is 0.0
boolean of "true" is false
string of 815 is null
without a schema 18446744073709551615 is -1
END_OF_SEEN
