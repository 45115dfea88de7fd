"""A real API server with its controllers, on loopback, for as long as the tests run. No nodes.

What a kubelet would report about pods is reported by tests/deploy/pods.py.
"""

from __future__ import annotations

import json
import os
import secrets
import ssl
import subprocess
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import httpx
import yaml

from hapax.sandbox.guard import Authority
from hapax.sandbox.processes import LOOPBACK, ManagedProcess, Ports
from hapax.sandbox.watchdog import ChildWatchdog
from tests.deploy import tools
from tests.deploy.manifests import Object, kustomized, only
from tests.deploy.schemas import OPERATORS, Table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.deploy.control_plane import ControlPlane

_TIMEOUT_S: Final = 120.0
_ANSWER_TIMEOUT_S: Final = 30.0
# Of the four dozen controllers those that deploy/ relies on.
_CONTROLLERS: Final = (
    "deployment-controller", "disruption-controller", "garbage-collector-controller",
    "namespace-controller", "replicaset-controller", "serviceaccount-controller",
    "statefulset-controller",
)  # fmt: skip
# Of Spark's operator, which is no Go program, so that its definition is in no Go module.
_BY_TABLE: Final = "spark.apache.org/v1 SparkApplication"


class ApiServer:
    """An API server in which the caller may do everything.

    ask  an httpx client: paths of the API, answers as they are
    """

    def __init__(self, url: str, folder: Path, token: str, ca_file: Path) -> None:
        self.ask = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            verify=ssl.create_default_context(cafile=ca_file),
            timeout=_ANSWER_TIMEOUT_S,
            trust_env=False,
        )
        access = folder / "user.yaml"
        access.write_text(_access(url, token, ca_file))
        # Nothing of the user who runs the tests: no cluster of theirs, and no cache.
        self._environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "KUBECONFIG": str(access)}

    def get(self, path: str) -> Any:
        """Return the object, or the list, at this path; httpx.HTTPStatusError when it is absent."""
        return self.ask.get(path).raise_for_status().json()

    def tried(self, *words: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl or helm against this server; the caller checks the exit code."""
        return subprocess.run(
            words,
            input=given,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            cwd="/",
        )

    def run(self, *words: str | Path, given: str = "") -> str:
        """Run kubectl or helm, which must succeed; return its output."""
        done = self.tried(*words, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def checked(self, objects: list[Object], space: str) -> subprocess.CompletedProcess[str]:
        """Have the server validate and admit objects, strictly; it keeps none of them.

        An unknown field, a warning of the pod security standard or of a deprecated version, and
        whatever an admission plugin refuses are errors.
        """
        words = ("--dry-run=server", "--validate=strict", "--warnings-as-errors")
        return self.tried(*self.applying(space), *words, given=yaml.safe_dump_all(objects))

    @staticmethod
    def applying(space: str) -> tuple[str | Path, ...]:
        """Return the command that applies what standard input has to a namespace."""
        return (tools.kubectl(), "--namespace", space, "apply", "--server-side", "-f", "-")

    def restricted(self, name: str = "") -> str:
        """Create a namespace with the labels of deploy/kustomize; return its name."""
        name = name or f"restricted-{secrets.token_hex(4)}"
        space = only(kustomized("overlays/production"), "Namespace")
        space["metadata"]["name"] = name
        self.run(*self.applying(name), given=json.dumps(space))
        return name


@contextmanager
def running(programs: ControlPlane, folder: Path) -> Iterator[ApiServer]:
    """Run etcd, the API server and the controllers; certificates and data are in ``folder``."""
    with ExitStack() as exits:
        watchdog = ChildWatchdog()
        exits.callback(watchdog.close)
        ports = Ports()
        exits.callback(ports.close)
        started = partial(_started, folder=folder, watchdog=watchdog, exits=exits)
        store = f"http://{LOOPBACK}:{ports.reserve()}"
        etcd = started(
            "etcd", _etcd(programs, folder, store, f"http://{LOOPBACK}:{ports.reserve()}")
        )
        asker = exits.enter_context(httpx.Client(base_url=store, trust_env=False))
        etcd.wait_until(lambda: _healthy(asker, "/health"))
        authority, token, port = Authority(folder), secrets.token_hex(16), ports.reserve()
        api = started("kube-apiserver", _api(programs, folder, authority, store, token, port))
        server = ApiServer(f"https://{LOOPBACK}:{port}", folder, token, authority.ca_file)
        exits.callback(server.ask.close)
        api.wait_until(lambda: _healthy(server.ask, "/readyz"))
        manager = started("kube-controller-manager", [
            programs.controller_manager, f"--kubeconfig={folder / 'user.yaml'}",
            f"--controllers={','.join(_CONTROLLERS)}", "--leader-elect=false", "--secure-port=0",
        ])  # fmt: skip
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        manager.wait_until(lambda: _healthy(server.ask, account))
        _define(server, programs)
        for name in ("hapax", "monitoring"):  # the namespaces that deploy/kustomize names
            server.restricted(name)
        yield server


def _started(
    name: str, command: list[str | Path], *, folder: Path, watchdog: ChildWatchdog, exits: ExitStack
) -> ManagedProcess:
    server = ManagedProcess(name, command, folder / f"{name}.log", watchdog)
    exits.callback(server.kill)
    server.start()
    return server


def _etcd(programs: ControlPlane, folder: Path, store: str, peers: str) -> list[str | Path]:
    return [
        programs.etcd, f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={store}", f"--advertise-client-urls={store}",
        f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
    ]  # fmt: skip


def _api(
    programs: ControlPlane, folder: Path, authority: Authority, store: str, token: str, port: int
) -> list[str | Path]:
    users = folder / "users.csv"
    users.write_text(f"{token},tests,tests,system:masters\n")
    served, signing = authority.issue("api-server"), authority.issue("accounts")
    return [
        programs.api_server, f"--etcd-servers={store}",
        f"--bind-address={LOOPBACK}", f"--secure-port={port}",
        f"--tls-cert-file={served.certificate_file}", f"--tls-private-key-file={served.key_file}",
        f"--token-auth-file={users}", "--authorization-mode=RBAC",
        "--service-account-issuer=https://tests",
        f"--service-account-key-file={signing.certificate_file}",
        f"--service-account-signing-key-file={signing.key_file}",
        "--service-cluster-ip-range=10.0.0.0/24",
        # As clusters do: what is refused is refused by the namespace.
        "--allow-privileged=true",
        # Else the server announces its own address, which must not be that of loopback.
        "--endpoint-reconciler-type=none",
    ]  # fmt: skip


def _healthy(client: httpx.Client, path: str) -> bool:
    try:
        return client.get(path).is_success
    except httpx.TransportError:
        return False


def _access(url: str, token: str, ca_file: Path) -> str:
    cluster = {"server": url, "certificate-authority": str(ca_file)}
    return yaml.safe_dump({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tests",
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
        "clusters": [{"name": "tests", "cluster": cluster}],
        "users": [{"name": "tests", "user": {"token": token}}],
    })  # fmt: skip


def _define(server: ApiServer, programs: ControlPlane) -> None:
    """Register the kinds of the operators, and wait until the server serves them."""
    definitions = [yaml.safe_load(file.read_text()) for file in programs.definitions.iterdir()]
    definitions.append(_definition(_BY_TABLE))
    server.run(*server.applying("default"), given=yaml.safe_dump_all(definitions))
    names = [f"crd/{each['metadata']['name']}" for each in definitions]
    server.run(tools.kubectl(), "wait", "--for=condition=Established", "--timeout=60s", *names)


def _definition(key: str) -> Object:
    """Return a definition that knows the fields of the table in tests/deploy/schemas.py."""
    api, kind = key.split()
    group, version = api.split("/")
    schema = {"type": "object", "properties": {"spec": _schema(OPERATORS[key])}}
    served = {"name": version, "served": True, "storage": True}
    plural = f"{kind.lower()}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [served | {"schema": {"openAPIV3Schema": schema}}],
        },
    }


def _schema(table: Table) -> Object:
    match table:
        case None:
            return {"type": "integer"}
        case "text":
            return {"type": "string"}
        case "pod":
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        case list():
            return {"type": "array", "items": _schema(table[0])}
        case {"*": inner}:
            return {"type": "object", "additionalProperties": _schema(inner)}
    return {"type": "object", "properties": {name: _schema(each) for name, each in table.items()}}
