"""Updates, rollbacks and releases on a real API server; the tests report what a kubelet would."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.deploy.release import EACH_KIND, IMAGE, REPLICAS, Release
from tests.deploy.test_values import BOTH
from tests.kit.waiting import await_

if TYPE_CHECKING:
    from tests.deploy.pods import Pods

pytestmark = pytest.mark.deep  # needs an API server
BROKEN = "hapax:broken"
ORDERED = pytest.mark.parametrize("kind", ["StatefulSet"])


def await_image(pods: Pods, image: str) -> None:
    await_(lambda: image in pods.images(), 60, lambda: f"{pods.images()}")


# -- updates -------------------------------------------------------------------------------


@EACH_KIND
def test_an_update_stops_at_an_image_that_never_gets_ready_and_a_rollback_replaces_it(release):
    pods = release.installed()
    release.chart("upgrade", "--set", "image.tag=broken")
    await_image(pods, BROKEN)
    pods.await_settled()
    assert pods.images() == [IMAGE, IMAGE, BROKEN]
    assert len(pods.ready()) == REPLICAS - 1

    release.helm("rollback", "hapax", "1")
    assert min(pods.bring_up(REPLICAS, IMAGE)) == REPLICAS - 1


@EACH_KIND
def test_kubectl_takes_back_an_update_that_never_gets_ready(release):
    pods = release.installed()
    release.kubectl("set", "image", release.target, f"hapax={BROKEN}")
    await_image(pods, BROKEN)
    release.kubectl("rollout", "undo", release.target)
    assert min(pods.bring_up(REPLICAS, IMAGE)) == REPLICAS - 1
    release.kubectl("rollout", "status", release.target, "--timeout=60s")


@EACH_KIND
def test_an_update_replaces_one_pod_at_a_time_and_all_of_them(release):
    pods = release.installed()
    before = pods.uids()
    release.chart("upgrade", "--set", "image.tag=0.1.1")
    assert min(pods.bring_up(REPLICAS, "hapax:0.1.1")) == REPLICAS - 1
    assert set(before).isdisjoint(pods.uids())


@EACH_KIND
def test_a_changed_setting_replaces_one_pod_at_a_time_and_all_of_them(release):
    pods = release.installed()
    before = pods.uids()
    release.chart("upgrade", "--set", "settings.HAPAX_OUTPUT__TOPIC=elsewhere")
    assert min(pods.bring_up(REPLICAS, IMAGE, without=before)) == REPLICAS - 1


@EACH_KIND
def test_an_upgrade_that_changes_nothing_replaces_no_pod(release):
    pods = release.installed()
    before = pods.uids()
    release.chart("upgrade")
    pods.await_settled()
    assert pods.uids() == before


@ORDERED
def test_a_canary_is_the_pods_from_its_ordinal_on(release):
    pods = release.installed()
    release.chart("upgrade", "--set", "image.tag=canary,update.partition=2")
    await_(lambda: pods.waiting() == ["hapax-2"], 60, lambda: f"{pods.waiting()}")
    pods.report("hapax-2")
    pods.await_settled()
    assert pods.images() == [IMAGE, IMAGE, "hapax:canary"]


# -- releases ------------------------------------------------------------------------------


@BOTH
@ORDERED
def test_a_release_is_installed_upgraded_rolled_back_and_uninstalled(server, kind, helm):
    release = Release(server, helm(), kind)
    pods = release.installed()
    first = release.settings()
    release.chart("upgrade", "--set", "settings.HAPAX_OUTPUT__TOPIC=elsewhere,replicas=4")
    assert release.settings() == first | {"HAPAX_OUTPUT__TOPIC": "elsewhere"}
    pods.bring_up(REPLICAS + 1, IMAGE)
    release.helm("rollback", "hapax", "1")
    assert release.settings() == first
    pods.bring_up(REPLICAS, IMAGE)
    assert release.revisions() == [(1, "superseded"), (2, "superseded"), (3, "deployed")]

    release.helm("uninstall", "hapax")
    pods.await_count(0)
    kinds = "configmap,service,networkpolicy,poddisruptionbudget,podmonitor,serviceaccount"
    left = release.kubectl("get", kinds, "--selector", "app.kubernetes.io/name=hapax")
    assert left == ""


@ORDERED
def test_an_upgrade_turns_a_stateful_set_into_a_deployment_and_back(release):
    pods = release.installed()
    before = pods.uids()
    release.chart("upgrade", files=("deployment",))
    pods.bring_up(REPLICAS, IMAGE, without=before)
    before = pods.uids()
    release.chart("upgrade")
    pods.bring_up(REPLICAS, IMAGE, without=before)
    assert [pod["metadata"]["name"] for pod in pods.all()] == ["hapax-0", "hapax-1", "hapax-2"]


@ORDERED
def test_an_upgrade_after_a_restart_by_kubectl_is_no_conflict(release):
    pods = release.installed()
    release.kubectl("rollout", "restart", release.target)
    release.chart("upgrade", "--set", "image.tag=0.1.1")
    pods.bring_up(REPLICAS, "hapax:0.1.1")


@ORDERED
@pytest.mark.parametrize("words", ["scale TARGET --replicas=6", "set image TARGET hapax=other:1"])
def test_what_kubectl_changed_in_a_release_helm_changes_back_only_by_force(release, words):
    """With Helm 4; docs/kubernetes.md says so. Helm 3 changes it back unasked."""
    pods = release.installed()
    release.kubectl(*words.replace("TARGET", release.target).split())
    with pytest.raises(AssertionError, match='conflict with "kubectl'):
        release.chart("upgrade")
    release.chart("upgrade", "--force-conflicts")
    pods.bring_up(REPLICAS, IMAGE)
