"""kube-apiserver and kube-controller-manager: built once from their Go modules, into the cache.

``python -m tests.deploy.control_plane`` (``make api-server``) builds them, which takes a core ten
minutes and more. Tests take what is in the cache and build nothing. No package registry has them
as programs. With them come the definitions that the operators register for their objects.

The module of Kubernetes replaces its libraries by folders that its archive lacks, so no tool
installs it by its name. Here a module of its own requires it and replaces each of these libraries
by the version that was published with it; the hashes of all others are those of its go.sum.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple

from hapax.sandbox import SandboxError, machine
from hapax.sandbox.machine import say
from tests.deploy import tools

COMMAND: Final = "make api-server"
VERSION: Final = "1.37.2"
_PROGRAMS: Final = ("kube-apiserver", "kube-controller-manager")
_BUILD_TIMEOUT_S: Final = 7200.0
_FETCH_TIMEOUT_S: Final = 600.0


class _Module(NamedTuple):
    """A module at a version, its hash as go.sum writes it, and files of it that are copied."""

    path: str
    version: str
    checksum: str
    files: tuple[str, ...] = ()


_KUBERNETES: Final = _Module(
    "k8s.io/kubernetes", f"v{VERSION}", "h1:A2VDEiObzkYqFTKhSsn0ZEb0RlLEXpHWj93gi2HqEwE="
)
# The versions that tests/deploy/schemas.py names. That of Spark is no Go program.
_OPERATORS: Final = (
    _Module(
        "github.com/kedacore/keda/v2",
        "v2.20.0",
        "h1:nPKQL9iKsPpoyq7BftlBzJiQzb2LdKHiqBIEG6ju3bk=",
        (
            "config/crd/bases/keda.sh_scaledobjects.yaml",
            "config/crd/bases/keda.sh_triggerauthentications.yaml",
        ),
    ),
    _Module(
        "github.com/prometheus-operator/prometheus-operator",
        "v0.93.0",
        "h1:AohlYJT+En8TmNpAcEUJ3GsaJTAqfEBwHmGTVpRm/Io=",
        (
            "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
            "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
        ),
    ),
)


class ControlPlane(NamedTuple):
    """The programs, and the folder with the operators' definitions as YAML."""

    etcd: Path
    api_server: Path
    controller_manager: Path
    definitions: Path


def found() -> ControlPlane | None:
    """Return what is on this machine already; None when a part of it is missing."""
    folder = machine.cache_folder() / _name()
    etcd = machine._on_path("etcd")
    return _of(folder, etcd) if folder.is_dir() and etcd is not None else None


def built() -> ControlPlane:
    """Build and install what is missing; SandboxError says what cannot be had here."""
    etcd = machine._find(lambda: machine._on_path("etcd"), ("etcd-server",))
    if etcd is None:
        raise SandboxError("etcd is not on the PATH. Run: sudo apt-get install etcd-server")
    return _of(tools.cached(_name(), _build), etcd)


def _name() -> str:
    """Return the name in the cache: another version of any part is another folder."""
    operators = "-".join(module.version for module in _OPERATORS)
    return f"kubernetes-{VERSION}-{operators}"


def _of(folder: Path, etcd: Path) -> ControlPlane:
    api_server, controller_manager = (folder / program for program in _PROGRAMS)
    return ControlPlane(etcd, api_server, controller_manager, folder / "definitions")


def _build(target: Path) -> None:
    """Fill the folder with programs and definitions."""
    work = target.parent
    definitions = target / "definitions"
    definitions.mkdir()
    for module in _OPERATORS:
        source = Path(_downloaded(module, work)["Dir"])
        for file in module.files:
            shutil.copyfile(source / file, definitions / Path(file).name)
    kubernetes = _downloaded(_KUBERNETES, work)
    theirs = json.loads(_go("mod", "edit", "-json", kubernetes["GoMod"], folder=work))
    (work / "go.mod").write_text(_requirements(theirs))
    shutil.copyfile(Path(kubernetes["Dir"]) / "go.sum", work / "go.sum")
    (work / "go.sum").chmod(0o644)  # the cache of modules is read-only
    say(f"Building Kubernetes {VERSION}: ten minutes of one core, and half an hour on a busy one")
    _go(
        *("build", "-mod=mod", "-trimpath", "-o", f"{target}/", "-ldflags"),
        # Helm and kubectl ask the server for this version, and charts decide by it.
        f"-s -w -X k8s.io/component-base/version.gitVersion=v{VERSION}",
        *(f"{_KUBERNETES.path}/cmd/{program}" for program in _PROGRAMS),
        folder=work,
        timeout_s=_BUILD_TIMEOUT_S,
    )


def _requirements(theirs: dict[str, Any]) -> str:
    """Return a go.mod that requires Kubernetes. ``theirs``: its own, as ``go mod edit`` shows it.

    Its library k8s.io/api 0.37.2 is that of Kubernetes 1.37.2, and so are all of them.
    """
    version = f"v0.{VERSION.partition('.')[2]}"
    names = [each["Old"]["Path"] for each in theirs["Replace"]]
    return "\n".join([
        "module control-plane",
        f"go {theirs['Go']}",
        f"require {_KUBERNETES.path} {_KUBERNETES.version}",
        *(f"replace {name} => {name} {version}" for name in names),
        "",
    ])  # fmt: skip


def _downloaded(module: _Module, work: Path) -> dict[str, str]:
    """Return where the module lies: ``Dir`` its files, ``GoMod`` its go.mod."""
    say(f"Fetching {module.path} {module.version}")
    wanted = f"{module.path}@{module.version}"
    answer: dict[str, str] = json.loads(_go("mod", "download", "-json", wanted, folder=work))
    if answer["Sum"] != module.checksum:
        raise SandboxError(f"{wanted} is not what it was: its hash is {answer['Sum']}")
    return answer


def _go(*words: str, folder: Path, timeout_s: float = _FETCH_TIMEOUT_S) -> str:
    """Run the tool; return its standard output. What it says meanwhile is shown as it comes."""
    go = machine._on_path("go")
    if go is None:
        raise SandboxError(f"Kubernetes {VERSION} is built with Go 1.26 or newer: install it")
    done = subprocess.run(
        [go, *words], stdout=subprocess.PIPE, text=True, timeout=timeout_s, check=False, cwd=folder
    )
    if done.returncode:
        raise SandboxError(f"go {words[0]} failed: {done.stdout[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    try:
        say(f"{built().api_server}")
    except SandboxError as error:
        raise SystemExit(str(error)) from error
