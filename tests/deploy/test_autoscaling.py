"""The number of pods when autoscaling is switched on, and later, on a real API server.

No KEDA: ``kubectl scale`` changes the number through the same subresource as its autoscaler does.
"""

from __future__ import annotations

import json

import pytest
import yaml

from tests.deploy import tools
from tests.deploy.manifests import Object, kustomized
from tests.deploy.release import IMAGE, REPLICAS, Release
from tests.deploy.test_values import BOTH

pytestmark = pytest.mark.deep  # needs an API server
ON = ("autoscaled",)
ORDERED = pytest.mark.parametrize("kind", ["StatefulSet"])


def scale(release: Release, count: int) -> None:
    release.kubectl("scale", release.target, "--replicas", str(count))


@BOTH
@ORDERED
def test_an_upgrade_to_autoscaling_keeps_the_pods_that_run(server, kind, helm):
    release = Release(server, helm(), kind)
    pods = release.installed()
    release.chart("upgrade", files=ON)
    assert release.replicas() == REPLICAS
    release.kubectl("get", "scaledobject/hapax")
    scale(release, 5)
    release.chart("upgrade", "--set", "image.tag=0.1.1", files=ON)
    assert release.replicas() == 5
    pods.bring_up(5, "hapax:0.1.1")


@BOTH
@ORDERED
def test_an_upgrade_to_the_values_of_an_earlier_revision_keeps_the_pods(server, kind, helm):
    release = Release(server, helm(), kind)
    release.installed()
    release.chart("upgrade", files=ON)
    release.chart("upgrade", "--set", "image.tag=broken", files=ON)
    scale(release, 7)
    release.chart("upgrade", files=ON)
    assert release.replicas() == 7
    release.pods.bring_up(7, IMAGE)


@ORDERED
def test_a_rollback_of_helm_4_does_not_overwrite_the_number_of_the_autoscaler(release):
    release.installed()
    release.chart("upgrade", files=ON)
    release.chart("upgrade", "--set", "image.tag=broken", files=ON)
    scale(release, 7)
    with pytest.raises(AssertionError, match=r"conflict.*spec\.replicas"):
        release.helm("rollback", "hapax", "2")
    assert release.replicas() == 7


@ORDERED
def test_a_rollback_of_helm_3_takes_the_number_of_its_revision(server, kind):
    """A limit that docs/kubernetes.md names: an upgrade to the earlier values has none of it."""
    release = Release(server, tools.old_helm(), kind)
    release.installed()
    release.chart("upgrade", files=ON)
    release.chart("upgrade", "--set", "image.tag=broken", files=ON)
    scale(release, 7)
    release.helm("rollback", "hapax", "2")
    assert release.replicas() == REPLICAS


# -- without Helm --------------------------------------------------------------------------


def moved(layer: str) -> str:
    """Return the objects of a layer without its namespace, as YAML."""
    objects: list[Object] = [each for each in kustomized(layer) if each["kind"] != "Namespace"]
    for each in objects:
        del each["metadata"]["namespace"]
    return yaml.safe_dump_all(objects)


def removed(release: Release) -> None:
    """Remove the number from what was applied last."""
    last = ("apply", "view-last-applied", release.target, "-o", "json")
    applied = json.loads(release.kubectl(*last))
    del applied["spec"]["replicas"]
    release.kubectl("apply", "set-last-applied", "-f", "-", given=json.dumps(applied))


def handed_over(release: Release) -> None:
    """Give the number a second owner."""
    live = json.loads(release.kubectl("get", release.target, "-o", "json"))
    number = {name: live[name] for name in ("apiVersion", "kind")} | {
        "metadata": {"name": live["metadata"]["name"]},
        "spec": {"replicas": live["spec"]["replicas"]},
    }
    words = ("apply", "--server-side", "--field-manager=autoscaling", "-f", "-")
    release.kubectl(*words, given=json.dumps(number))


@ORDERED
@pytest.mark.parametrize("option", ["--server-side=false", "--server-side=true"])
@pytest.mark.parametrize("prepared", ["prepared", "unprepared"])
def test_kubectl_apply_with_autoscaling_keeps_the_pods_when_it_was_prepared(
    release, option, prepared
):
    """The commands of docs/kubernetes.md, with the work of ``jq`` done here."""
    words = ("apply", option, "-f", "-")
    release.kubectl(*words, given=moved("overlays/production"))
    assert release.replicas() == REPLICAS
    if prepared == "prepared":
        (handed_over if option.endswith("true") else removed)(release)
    release.kubectl(*words, given=moved("overlays/autoscaled"))
    assert release.replicas() == (REPLICAS if prepared == "prepared" else 1)
    if prepared == "prepared":
        scale(release, 5)
        release.kubectl(*words, given=moved("overlays/autoscaled"))
        assert release.replicas() == 5
