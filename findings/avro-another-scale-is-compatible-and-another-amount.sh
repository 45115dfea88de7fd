#!/usr/bin/env bash
# Two schemas whose decimals differ in their scale, or whose times are in milliseconds and in
# microseconds, are compatible for avro (Java) 1.12.1, whose check schema registries in Java call. Its
# reader then takes the number that was written for one of the reader's own scale or unit: 12.30 is
# 0.1230, and a time of 2026 is in January 1970. fastavro 1.13.1 and avro (Python) 1.12.2 read the same
# bytes with the same two schemas by what the writer meant. Avro's specification says of decimals that
# they match only if precision and scale do.
# Expected: such a change is refused as incompatible, or the value is converted.
# Seen, of the amount 12.30 in scale 2 and the time 2026-07-01T12:00:00.123Z in milliseconds, by a
# reader's schema with scale 4 and microseconds:
#   SchemaCompatibility: COMPATIBLE COMPATIBLE
#   Java:     0.1230 1970-01-21T15:15:07.200123Z
#   fastavro: 12.30 2026-07-01T12:00:00.123000+00:00
#   Python:   12.30 2026-07-01T12:00:00.123000+00:00
# Needs Java 17 or newer and Maven.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install --quiet fastavro==1.13.1 avro==1.12.2
cat > pom.xml <<'END_OF_POM'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
  <groupId>a</groupId><artifactId>a</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies><dependency><groupId>org.apache.avro</groupId><artifactId>avro</artifactId>
  <version>1.12.1</version></dependency></dependencies></project>
END_OF_POM
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DoutputDirectory=jars > maven.log 2>&1
cat > ask.py <<'END_OF_PROGRAM'
import io, json, pathlib, sys
import avro.io, avro.schema, fastavro

def schema(scale, unit):
    amount = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": scale}
    at = {"type": "long", "logicalType": f"timestamp-{unit}"}
    fields = [{"name": "amount", "type": amount}, {"name": "at", "type": at}]
    return {"type": "record", "name": "Payment", "fields": fields}

written, read = schema(2, "millis"), schema(4, "micros")
if sys.argv[1] == "write":
    import datetime as dt, decimal
    at = dt.datetime(2026, 7, 1, 12, 0, 0, 123_000, dt.timezone.utc)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, written, {"amount": decimal.Decimal("12.30"), "at": at})
    pathlib.Path("payment").write_bytes(out.getvalue())
    pathlib.Path("written.avsc").write_text(json.dumps(written))
    pathlib.Path("read.avsc").write_text(json.dumps(read))
else:
    content = io.BytesIO(pathlib.Path("payment").read_bytes())
    payment = fastavro.schemaless_reader(content, written, read)
    print("fastavro:", payment["amount"], payment["at"].isoformat())
    content.seek(0)
    written, read = map(avro.schema.make_avsc_object, (written, read))
    payment = avro.io.DatumReader(written, read).read(avro.io.BinaryDecoder(content))
    print("Python:  ", payment["amount"], payment["at"].isoformat())
END_OF_PROGRAM
cat > Ask.java <<'END_OF_PROGRAM'
import java.io.File;
import java.nio.file.*;
import org.apache.avro.*;
import org.apache.avro.Schema.Field;
import org.apache.avro.data.TimeConversions;
import org.apache.avro.generic.*;
import org.apache.avro.io.DecoderFactory;

public class Ask {
  static Schema alone(Schema schema, String name) {
    Field field = schema.getField(name);
    return Schema.createRecord("Payment", null, null, false,
        java.util.List.of(new Field(field, field.schema())));
  }

  public static void main(String[] names) throws Exception {
    Schema written = new Schema.Parser().parse(new File("written.avsc"));
    Schema read = new Schema.Parser().parse(new File("read.avsc"));
    System.out.print("SchemaCompatibility:");
    for (String name : new String[] {"amount", "at"}) {
      System.out.print(" " + SchemaCompatibility
          .checkReaderWriterCompatibility(alone(read, name), alone(written, name)).getType());
    }
    GenericData data = new GenericData();
    data.addLogicalTypeConversion(new Conversions.DecimalConversion());
    data.addLogicalTypeConversion(new TimeConversions.TimestampMicrosConversion());
    byte[] content = Files.readAllBytes(Path.of("payment"));
    GenericRecord payment = new GenericDatumReader<GenericRecord>(written, read, data)
        .read(null, DecoderFactory.get().binaryDecoder(content, null));
    System.out.println("\nJava:     " + payment.get("amount") + " " + payment.get("at"));
  }
}
END_OF_PROGRAM
venv/bin/python ask.py write
{
    java -cp 'jars/*' Ask.java 2> java.log
    venv/bin/python ask.py read
} | tee seen
diff seen - <<'END_OF_SEEN'
SchemaCompatibility: COMPATIBLE COMPATIBLE
Java:     0.1230 1970-01-21T15:15:07.200123Z
fastavro: 12.30 2026-07-01T12:00:00.123000+00:00
Python:   12.30 2026-07-01T12:00:00.123000+00:00
END_OF_SEEN
