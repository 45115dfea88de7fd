#!/usr/bin/env bash
# fastavro 1.13.1 writes values that the type of a field does not hold, without an error: an "int" takes
# 2147483648, which Java (Apache avro 1.12.1) reads as 0, and 3000000000, which it reads as another number;
# a "boolean" takes the text "false" as true, a "null" takes 5 as null. It reads its own int back as it was,
# so no test in Python shows it. validate() of fastavro refuses all of them; the writer asks it in unions
# alone. Apache's avro for Python refuses them as well.
# Expected: an error, as for a text in an int, or a long beyond 64 bits.
# Seen:
#   int 2147483647      fastavro reads 2147483647  Java reads 2147483647
#   int 2147483648      fastavro reads 2147483648  Java reads 0
#   int 3000000000      fastavro reads 3000000000  Java reads 852516352
#   boolean 'false'     fastavro reads True        Java reads true
#   null 5              fastavro reads None        Java reads null
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet fastavro==1.13.1 avro==1.12.2 jgo==3.2.0
cat > "$work/Read.java" <<'END'
import java.util.HexFormat;
import org.apache.avro.Schema;
import org.apache.avro.generic.*;
import org.apache.avro.io.DecoderFactory;

class Read {
    public static void main(String[] words) throws Exception {
        for (int at = 0; at < words.length; at += 2) {
            var reader = new GenericDatumReader<GenericRecord>(new Schema.Parser().parse(words[at]));
            byte[] content = HexFormat.of().parseHex(words[at + 1]);
            System.out.println(reader.read(null, DecoderFactory.get().binaryDecoder(content, null)).get("x"));
        }
    }
}
END
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import io, json, subprocess, sys
import avro.errors, avro.io, avro.schema, fastavro, jgo

CASES = {
    ("int", 2147483647): ("2147483647", "2147483647"),
    ("int", 2147483648): ("2147483648", "0"),
    ("int", 3000000000): ("3000000000", "852516352"),
    ("boolean", "false"): ("True", "true"),
    ("null", 5): ("None", "null"),
}

def schema(kind):
    return {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}

def refused_by_avro(kind, value):
    writer = avro.io.DatumWriter(avro.schema.parse(json.dumps(schema(kind))))
    try:
        writer.write({"x": value}, avro.io.BinaryEncoder(io.BytesIO()))
    except avro.errors.AvroTypeException:
        return True
    return False

words, own = [], []
for kind, value in CASES:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema(kind), {"x": value})
    words += [json.dumps(schema(kind)), out.getvalue().hex()]
    out.seek(0)
    own.append(str(fastavro.schemaless_reader(out, schema(kind), None)["x"]))
    valid = fastavro.validate({"x": value}, schema(kind), raise_errors=False)
    assert valid == (value == 2147483647) == (not refused_by_avro(kind, value)), "it has changed"
jars = ":".join(map(str, jgo.build("org.apache.avro:avro:1.12.1").all_jars))
java = ["java", "-XX:TieredStopAtLevel=1", "-cp", jars, sys.argv[1], *words]
others = subprocess.run(java, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.split()
for (kind, value), mine, theirs in zip(CASES, own, others, strict=True):
    print(f"{kind + ' ' + repr(value):19} fastavro reads {mine:11} Java reads {theirs}")
assert list(zip(own, others)) == list(CASES.values()), "it has changed"
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py" "$work/Read.java"
