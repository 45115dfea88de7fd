#!/usr/bin/env bash
# The Cast transform of Kafka Connect (4.3.1) refuses text that is no number of its type, and takes every
# number: an int64 beyond an int32 is another one, a fraction is cut off, NaN is 0, and a double beyond
# an int8 is -1; a number as a whole that a float32 cannot hold is its neighbour. The record is
# written, with no exception for errors.tolerance or the dead letter queue.
# Expected: a DataException, as for the text "300" cast to an int8.
# Seen:
#   "300" to int8: DataException
#   300 to int8: 44
#   2147483648 to int32: -2147483648
#   19.99 to int64: 19
#   NaN to int64: 0
#   9.3E18 to int8: -1
#   16777217 to float32: 1.6777216E7
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
import java.util.Map;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Cast;

public class Ask {
  static Object cast(String type, Object value) {
    Cast.Value<SourceRecord> cast = new Cast.Value<>();
    cast.configure(Map.of("spec", type));
    try {
      return cast.apply(new SourceRecord(null, null, "payments", null, value)).value();
    } catch (DataException refused) {
      return "DataException";
    }
  }

  public static void main(String[] names) {
    System.out.println("\"300\" to int8: " + cast("int8", "300"));
    Object[][] asked = {
      {300L, "int8"}, {2147483648L, "int32"}, {19.99, "int64"}, {Double.NaN, "int64"},
      {9.3e18, "int8"}, {16777217L, "float32"}};
    for (Object[] one : asked) {
      System.out.println(one[0] + " to " + one[1] + ": " + cast((String) one[1], one[0]));
    }
  }
}
END_OF_PROGRAM
java -cp 'jars/*' Ask.java 2> java.log | tee seen
diff seen - <<'END_OF_SEEN'
"300" to int8: DataException
300 to int8: 44
2147483648 to int32: -2147483648
19.99 to int64: 19
NaN to int64: 0
9.3E18 to int8: -1
16777217 to float32: 1.6777216E7
END_OF_SEEN
