#!/usr/bin/env bash
# PySpark 4.2.1 (Java 17 or newer on PATH): who reads an amount of JSON as text, to keep its digits, gets
# the text of a double: from_json into a string, get_json_object, json_tuple and json inside a string
# field parse a number with a fraction and print it again. The cast to a decimal that follows has other
# digits, without an error. from_json into a decimal reads the digits themselves, and rounds what has
# more places than its type (19.999 is 20.00) where others refuse it. A long integer stays as it is.
# Expected: a field that is read as text is the text that is in the JSON.
# Seen:
#   of 12345678901234567.89:
#     from_json string:        1.2345678901234568E16
#     get_json_object:         1.2345678901234568E16
#     json_tuple:              1.2345678901234568E16
#     the same as decimal:     12345678901234568.00
#     from_json decimal(38,2): 12345678901234567.89
#   of 1.10:
#     from_json string:        1.1
#     get_json_object:         1.1
#     json_tuple:              1.1
#     the same as decimal:     1.10
#     from_json decimal(38,2): 1.10
#   of 19.999:
#     from_json string:        19.999
#     get_json_object:         19.999
#     json_tuple:              19.999
#     the same as decimal:     20.00
#     from_json decimal(38,2): 20.00
#   of 12345678901234567890:
#     get_json_object:         12345678901234567890
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pyspark==4.2.1
cat > "$work/ask.py" <<'END_OF_PROGRAM'
from pyspark.sql import SparkSession, functions as f

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")

def asked(number):
    """Return what each way makes of the number in {"amount": number}."""
    records = spark.createDataFrame([(f'{{"amount":{number}}}',)], "value string")
    ways = {
        "from_json string:": f.from_json("value", "amount string").amount,
        "get_json_object:": f.get_json_object("value", "$.amount"),
        "json_tuple:": f.json_tuple("value", "amount"),
        "the same as decimal:": f.get_json_object("value", "$.amount").cast("decimal(38,2)"),
        "from_json decimal(38,2):": f.from_json("value", "amount decimal(38,2)").amount,
    }
    return {name: str(records.select(way).first()[0]) for name, way in ways.items()}

whole = "12345678901234567890"
seen = {number: asked(number) for number in ("12345678901234567.89", "1.10", "19.999")}
seen[whole] = {"get_json_object:": asked(whole)["get_json_object:"]}
for number, found in seen.items():
    print(f"of {number}:")
    for name, text in found.items():
        print(f"  {name:24} {text}")
double = "1.2345678901234568E16"
assert list(seen["12345678901234567.89"].values()) == [
    double, double, double, "12345678901234568.00", "12345678901234567.89",
], "it has changed"
assert list(seen["1.10"].values()) == ["1.1", "1.1", "1.1", "1.10", "1.10"], "it has changed"
assert list(seen["19.999"].values())[3:] == ["20.00", "20.00"], "it has changed"
assert seen[whole]["get_json_object:"] == whole, "it has changed"
spark.stop()
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py" 2> "$work/spark.log"
