"""The chart as a release on a real API server, in a restricted namespace of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.deploy import tools
from tests.deploy.manifests import CHART, WORKLOADS
from tests.deploy.pods import Pods

if TYPE_CHECKING:
    from pathlib import Path

    from tests.deploy.api_server import ApiServer

IMAGE: Final = "hapax:0.1.0"
REPLICAS: Final = 3
EACH_KIND: Final = pytest.mark.parametrize("kind", WORKLOADS)
_FILES: Final = {"StatefulSet": ("production",), "Deployment": ("production", "deployment")}


class Release:
    """A release called hapax, of the values of production.

    pods    those of its workload
    target  the workload as kubectl names it
    """

    def __init__(self, server: ApiServer, helm: Path, kind: str) -> None:
        self.pods = Pods(server, server.restricted(), kind)
        self.target = f"{kind.lower()}/hapax"
        self._server = server
        self._helm = helm
        self._files = _FILES[kind]

    def helm(self, *words: str | Path) -> str:
        """Run helm in the namespace; return its output."""
        return self._server.run(self._helm, *words, "--namespace", self.pods.space)

    def kubectl(self, *words: str | Path, given: str = "") -> str:
        """Run kubectl in the namespace; return its output."""
        command = (tools.kubectl(), "--namespace", self.pods.space, *words)
        return self._server.run(*command, given=given)

    def chart(self, command: str, *options: str, files: tuple[str, ...] = ()) -> None:
        """Install or upgrade, with further files of values and options."""
        chosen = [CHART / f"values/{name}.yaml" for name in (*self._files, *files)]
        words = [word for file in chosen for word in ("-f", file)]
        self.helm(command, "hapax", CHART, *words, *options)

    def installed(self, *options: str) -> Pods:
        """Install it and report its pods as ready; return them."""
        self.chart("install", *options)
        self.pods.bring_up(REPLICAS, IMAGE)
        return self.pods

    def replicas(self) -> int:
        """Return how many pods the workload asks for."""
        count: int = self._server.get(self.pods.workload)["spec"]["replicas"]
        return count

    def settings(self) -> Any:
        """Return the content of the ConfigMap."""
        path = f"/api/v1/namespaces/{self.pods.space}/configmaps/hapax-settings"
        return self._server.get(path)["data"]

    def revisions(self) -> list[tuple[int, str]]:
        """Return number and state of each revision, as helm lists them."""
        history = json.loads(self.helm("history", "hapax", "--output", "json"))
        return [(each["revision"], each["status"]) for each in history]
