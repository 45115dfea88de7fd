#!/usr/bin/env bash
# The extra schemaregistry of confluent-kafka 2.16.1 (PyPI) brings Authlib 1.9.10, which its client
# needs for OAuth. The client's module imports Authlib at its top, Authlib imports joserfc 1.8.0, and
# joserfc imports cryptography 50.0.2. So a client that asks a registry without any login cannot be
# imported where cryptography is missing, and each process that does loads it.
# Expected: what only OAuth needs is imported where OAuth is set.
# Seen:
#   without cryptography: ModuleNotFoundError, by confluent_kafka, authlib, joserfc
#   a client for plain HTTP: cryptography is loaded, its part in Rust too
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip -q install 'confluent-kafka[schemaregistry]==2.16.1' 'Authlib==1.9.10' \
    'joserfc==1.8.0' 'cryptography==50.0.2'
cat > seen.py <<'END'
import sys
import traceback

WAY = ("confluent_kafka", "authlib", "joserfc")
if "without" in sys.argv:
    sys.modules["cryptography"] = None
    try:
        import confluent_kafka.schema_registry
    except ImportError as error:
        files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        by = [name for name in WAY if any(f"/{name}/" in file for file in files)]
        print(f"without cryptography: {type(error).__name__}, by {', '.join(by)}")
else:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    SchemaRegistryClient({"url": "http://127.0.0.1:1"})  # is never asked
    rust = "cryptography.hazmat.bindings._rust" in sys.modules
    print(f"a client for plain HTTP: cryptography is loaded, its part in Rust {'too' * rust}")
END
{ venv/bin/python seen.py without; venv/bin/python seen.py; } | tee seen
cmp seen - <<'END'
without cryptography: ModuleNotFoundError, by confluent_kafka, authlib, joserfc
a client for plain HTTP: cryptography is loaded, its part in Rust too
END
