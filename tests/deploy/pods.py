"""Pods on a server without nodes: asked for, evicted, and reported ready as a kubelet would."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from tests.kit.waiting import await_

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.deploy.api_server import ApiServer

_WAIT_S: Final = 60.0
_PATCH: Final = {"Content-Type": "application/strategic-merge-patch+json"}


class Pods:
    """The pods of hapax in one namespace, and the workload that makes them.

    workload  the path of the workload in the API
    """

    def __init__(self, server: ApiServer, space: str, kind: str) -> None:
        self._server = server
        self.space = space
        self.workload = f"/apis/apps/v1/namespaces/{space}/{kind.lower()}s/hapax"
        self._path = f"/api/v1/namespaces/{space}/pods"
        self._budget = f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets/hapax"

    def all(self) -> list[Any]:
        """Return the pods that are not being deleted, by name."""
        items = self._server.get(self._path)["items"]
        there = [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]
        return sorted(there, key=lambda pod: str(pod["metadata"]["name"]))

    def images(self) -> list[str]:
        """Return the image of each pod, sorted."""
        return sorted(map(_image, self.all()))

    def uids(self) -> list[str]:
        """Return what tells a pod from its replacement."""
        return [pod["metadata"]["uid"] for pod in self.all()]

    def ready(self) -> list[str]:
        """Return the names of those that are ready."""
        return [pod["metadata"]["name"] for pod in self.all() if _is_ready(pod)]

    def waiting(self) -> list[str]:
        """Return the names of those that run, or would, and are not ready."""
        return [pod["metadata"]["name"] for pod in self.all() if not _is_ready(pod)]

    def report(self, name: str, *, ready: bool = True) -> None:
        """Report that a pod runs, and whether it is ready."""
        condition = {"type": "Ready", "status": str(ready)}
        status = {"phase": "Running", "conditions": [condition]}
        answer = self._server.ask.patch(
            f"{self._path}/{name}/status", json={"status": status}, headers=_PATCH
        )
        # One that its controller has replaced in the meantime has no status any more.
        assert answer.status_code in {HTTPStatus.OK, HTTPStatus.NOT_FOUND}, answer.text

    def evict(self, name: str) -> int:
        """Ask for the eviction of a pod, as a drain does; return the status of the answer."""
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        return self._server.ask.post(f"{self._path}/{name}/eviction", json=eviction).status_code

    def change(self, path: str, **fields: Any) -> None:
        """Change fields of the spec of an object."""
        patch = {"Content-Type": "application/merge-patch+json"}
        self._server.ask.patch(path, json={"spec": fields}, headers=patch).raise_for_status()

    def change_budget(self, **fields: Any) -> None:
        """Change the disruption budget, and wait until its controller has counted by it."""
        self.change(self._budget, **fields)
        await_(lambda: _observed(self._server.get(self._budget)), _WAIT_S, self._words)

    def await_budget(self, healthy: int, allowed: int) -> None:
        """Wait until the budget counts so many healthy pods, and allows so many evictions."""

        def counted() -> bool:
            status = self._server.get(self._budget)["status"]
            return (status["currentHealthy"], status["disruptionsAllowed"]) == (healthy, allowed)

        await_(counted, _WAIT_S, self._words)

    def await_count(self, count: int) -> None:
        """Wait until there are so many pods."""
        await_(lambda: len(self.all()) == count, _WAIT_S, self._words)

    def await_settled(self) -> None:
        """Wait until the controller has decided about the pods as they are now.

        It writes the generation of the spec that it has seen once it has done what is to do. So a
        field that concerns no pod is changed, and changed back: Helm applies its own value of it,
        and a field that another client has changed would be a conflict.
        """
        history = self._server.get(self.workload)["spec"]["revisionHistoryLimit"]
        for number in (history + 1, history):
            self.change(self.workload, revisionHistoryLimit=number)
            await_(lambda: _observed(self._server.get(self.workload)), _WAIT_S, self._words)

    def bring_up(self, count: int, image: str, *, without: Collection[str] = ()) -> list[int]:
        """Report each pod with this image as ready, until so many are and no other pod exists.

        without  uids of pods that have to be replaced

        Return how many were ready at each step. A step in which a pod is missing is never skipped:
        no replacement is ready before it was seen here.
        """
        steps: list[int] = []

        def done() -> bool:
            pods = self.all()
            steps.append(len([pod for pod in pods if _is_ready(pod)]))
            for pod in pods:
                if not _is_ready(pod) and _image(pod) == image:
                    self.report(pod["metadata"]["name"])
            old = [pod for pod in pods if pod["metadata"]["uid"] in without]
            return self.images() == [image] * count and len(self.ready()) == count and not old

        await_(done, _WAIT_S, self._words)
        return steps

    def refusals(self) -> list[str]:
        """Return what the controllers reported of pods that the server would not take."""
        events = self._server.get(f"/api/v1/namespaces/{self.space}/events")["items"]
        return [event["message"] for event in events if event["reason"] == "FailedCreate"]

    def _words(self) -> str:
        workload = self._server.ask.get(self.workload).json()
        return f"{workload['status']} {self.images()} {self.refusals()}"


def _image(pod: Any) -> str:
    return str(pod["spec"]["containers"][0]["image"])


def _is_ready(pod: Any) -> bool:
    conditions = pod["status"].get("conditions", ())
    return ("Ready", "True") in [(each["type"], each["status"]) for each in conditions]


def _observed(each: Any) -> bool:
    return bool(each["status"].get("observedGeneration") == each["metadata"]["generation"])
