#!/usr/bin/env bash
# Kafka Connect 4.4.0's default header.converter (SimpleHeaderConverter) reads texts that look like
# numbers as numbers, and decimals as 32-bit floats where that seems to be enough: a header that passes
# through a worker comes out with other bytes, ids that were two become one, and 16777217.1 becomes
# 16777218. Workers or connectors with header.converter=ByteArrayConverter keep the bytes.
# Expected: the bytes that went in, or at least the same number.
# Seen, in -> out:
#   order-815 -> order-815, 00815 -> 815, 1e3 -> 1000, 5.0 -> 5, 12e4567 -> 1.2E+4568
#   16777217.1 -> 1.6777218E7, 123456789012345678.5 -> 1.23456791E17, {"a": 1} -> {"a":1}
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/pom.xml" <<END
<project><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version>
<packaging>pom</packaging><dependencies><dependency><groupId>org.apache.kafka</groupId>
<artifactId>connect-api</artifactId><version>4.4.0</version></dependency></dependencies></project>
END
mvn -q -B -f "$work/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DoutputDirectory="$work/jars" -DincludeScope=runtime >&2
cat >"$work/Try.java" <<'END'
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;

class Try {
    public static void main(String[] words) {
        var converter = new SimpleHeaderConverter();
        converter.configure(Map.of());
        for (String id : List.of("order-815", "00815", "1e3", "5.0", "12e4567", "16777217.1",
                "123456789012345678.5", "{\"a\": 1}")) {
            var header = converter.toConnectHeader("orders", "message-id", id.getBytes());
            var out = converter.fromConnectHeader("orders", "message-id", header.schema(), header.value());
            System.out.println(id + " -> " + new String(out));
        }
    }
}
END
seen=$(java -XX:TieredStopAtLevel=1 -cp "$work/jars/*" "$work/Try.java" 2>"$work/said.txt")
echo "$seen"
[[ $seen == 'order-815 -> order-815
00815 -> 815
1e3 -> 1000
5.0 -> 5
12e4567 -> 1.2E+4568
16777217.1 -> 1.6777218E7
123456789012345678.5 -> 1.23456791E17
{"a": 1} -> {"a":1}' ]]
