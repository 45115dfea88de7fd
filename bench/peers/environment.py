"""An environment of its own for each peer: its libraries are not ours, and ours are not its.

Made on demand under ``build/peers``, from the lock of that peer, for the benchmark and for the
controls of the fault tests; standard library only.
"""

import fcntl
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

PEERS = Path(__file__).parent
BUILD = PEERS.parents[1] / "build/peers"


def environment(name: str) -> Path:
    """Return the interpreter of a peer's environment, and build that first where it is missing.

    Another process that builds the same is waited for. Raises CalledProcessError when a library
    cannot be had.
    """
    wanted = PEERS / name / "requirements.txt"
    folder = BUILD / name
    stamp, state = folder / "built", sha256(wanted.read_bytes()).hexdigest()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != state:
            _build(folder, wanted)
            stamp.write_text(state)
    return folder / "bin" / "python"


def _build(folder: Path, wanted: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    subprocess.run(
        [*pip, "install", "--quiet", "--require-hashes", "-r", str(wanted)], check=True, timeout=600
    )
