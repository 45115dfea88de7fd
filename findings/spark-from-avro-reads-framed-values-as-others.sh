#!/usr/bin/env bash
# PySpark 4.2.0 with its own spark-avro (Java 17 or newer on PATH): from_avro leaves bytes unread without
# a word. A value that a serializer with a schema registry wrote (a zero byte and four of the schema's
# id come first) is another row: the zero byte is an empty string, and so on; the rest is not looked
# at. Mode FAILFAST, which "throws an exception on processing corrupted record", throws none.
# Expected: an error in FAILFAST and null in PERMISSIVE, for bytes are left over.
# Seen, of {"id": "e1", "cents": 100} in such a frame:
#   FAILFAST:            {"id":"","cents":0}
#   PERMISSIVE:          {"id":"","cents":0}
#   substring(value, 6): {"id":"e1","cents":100}
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pyspark==4.2.0 fastavro==1.12.1 jgo==3.2.0
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import io, json
import fastavro, jgo
from pyspark.sql import SparkSession, functions as f
from pyspark.sql.avro.functions import from_avro

environment = jgo.build("org.apache.spark:spark-avro_2.13:4.2.0")
jar = next(str(jar) for jar in environment.all_jars if jar.name.startswith("spark-avro"))
spark = (
    SparkSession.builder.master("local[1]").config("spark.jars", jar)
    .config("spark.ui.enabled", "false").getOrCreate()
)
fields = [{"name": "id", "type": "string"}, {"name": "cents", "type": "long"}]
schema = {"type": "record", "name": "Order", "fields": fields}
encoded = io.BytesIO()
fastavro.schemaless_writer(encoded, schema, {"id": "e1", "cents": 100})
framed = b"\0" + (7).to_bytes(4, "big") + encoded.getvalue()
rows = spark.createDataFrame([(framed,)], "value binary")

def read(column, mode):
    decoded = from_avro(column, json.dumps(schema), {"mode": mode})
    return rows.select(f.to_json(decoded).alias("read")).first()["read"]

seen = {mode: read(f.col("value"), mode) for mode in ("FAILFAST", "PERMISSIVE")}
seen["substring(value, 6)"] = read(f.expr("substring(value, 6)"), "FAILFAST")
for how, row in seen.items():
    print(f"{how + ':':20} {row}")
other, right = '{"id":"","cents":0}', '{"id":"e1","cents":100}'
assert [*seen.values()] == [other, other, right], "it has changed"
END_OF_PROGRAM
export PYSPARK_PYTHON="$work/venv/bin/python"
"$work/venv/bin/python" "$work/ask.py" 2> "$work/log" || { tail -n 20 "$work/log" >&2; exit 1; }
