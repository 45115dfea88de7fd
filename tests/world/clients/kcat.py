"""kcat: its own format string, with the lengths that tell null from empty."""

import base64
import json
import re
import shutil
import subprocess
import sys

KCAT = shutil.which("kcat")
FORMAT = r"%p %o %T %K %S\n%k%s%h\n"


def text(content):
    return None if content is None else base64.b64encode(content).decode()


def taken(stream, size):
    return None if size < 0 else stream.read(size)


def consume(*words):
    process = subprocess.Popen([KCAT, *words, "-e", "-q", "-f", FORMAT], stdout=subprocess.PIPE)
    while head := process.stdout.readline().split():
        partition, offset, time_ms, key_size, value_size = map(int, head)
        line = {"p": partition, "o": offset, "t": time_ms}
        line["k"] = text(taken(process.stdout, key_size))
        line["v"] = text(taken(process.stdout, value_size))
        pairs = re.findall(r"([^=,]*)=([^,]*)", process.stdout.readline().decode().rstrip("\n"))
        line["h"] = [
            [name, None if value == "NULL" else text(value.encode())] for name, value in pairs
        ]
        print(json.dumps(line))
    sys.exit(process.wait())


def read(asked):
    level = [] if asked["level"] == "default" else ["-X", f"isolation.level={asked['level']}"]
    consume("-C", "-b", asked["bootstrap"], "-t", asked["topic"], "-o", "beginning", *level)


def group(asked):
    earliest = ("-X", "auto.offset.reset=earliest")
    consume("-b", asked["bootstrap"], *earliest, "-G", asked["group"], asked["topic"])


def write(asked):
    lines = []
    for line in sys.stdin:
        given = json.loads(line)
        if "t" in given:
            sys.exit("kcat has no option for the time of a record")
        lines.append(b"\t".join(base64.b64decode(given[field]) for field in ("k", "v")) + b"\n")
    settings = {"": [], "murmur2": ["-X", "topic.partitioner=murmur2_random"]}[asked["variant"]]
    words = [KCAT, "-P", "-b", asked["bootstrap"], "-t", asked["topic"], "-K", "\\t", *settings]
    subprocess.run(words, input=b"".join(lines), check=True)


{"read": read, "group": group, "write": write}[sys.argv[1]](json.loads(sys.argv[2]))
