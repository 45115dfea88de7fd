"""Kustomize and Helm make the same objects, and Kubernetes knows every field of them."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.deploy import tools
from tests.deploy.manifests import (
    CHART,
    DEPLOY,
    LAYERS,
    PAIRS,
    RENDERED,
    SHARED,
    charted,
    comparable,
    kustomized,
    leaves,
    only,
)
from tests.deploy.schemas import VERSIONS, problems

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Tool = Callable[[], Path]

pytestmark = pytest.mark.deep  # needs kubectl and Helm


@pytest.mark.parametrize("helm", [tools.helm, tools.old_helm], ids=lambda helm: helm.__name__)
@pytest.mark.parametrize("layer", RENDERED)
def test_the_chart_makes_the_objects_of_the_kustomization(layer, helm):
    ours = comparable(kustomized(layer))
    theirs = comparable(charted(*RENDERED[layer], helm=helm()))
    assert sorted(ours) == sorted(theirs)
    for key, each in ours.items():
        assert dict(leaves(each)) == dict(leaves(theirs[key])), key


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("layer", [*LAYERS, SHARED])
def test_every_object_is_known_to_kubernetes_field_by_field(layer, version):
    objects = kustomized(layer)
    assert len(objects) > (1 if layer == SHARED else 3)
    assert [problem for each in objects for problem in problems(each, version)] == []


def test_a_field_that_does_not_exist_is_noticed():
    objects = kustomized("overlays/autoscaled")
    noticed = set()
    for each in objects:
        each.get("spec", each)["nothing"] = 1
        if problems(each):
            noticed.add(each["kind"])
    assert noticed == {each["kind"] for each in objects}


def test_helm_finds_nothing_to_complain_about():
    done = subprocess.run(
        [tools.helm(), "lint", "--strict", CHART], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_alerts_are_the_same_everywhere():
    groups = yaml.safe_load((DEPLOY / "monitoring/alerts.yaml").read_text())["groups"]
    assert groups
    for objects in (kustomized(SHARED), charted("cluster")):
        assert only(objects, "PrometheusRule")["spec"]["groups"] == groups


def test_alerts_and_dashboard_come_once_and_not_with_each_pipeline():
    for objects in (*map(kustomized, LAYERS), *(charted(*names) for names in PAIRS.values())):
        assert {"PrometheusRule"}.isdisjoint(each["kind"] for each in objects)
        assert len([each for each in objects if each["kind"] == "ConfigMap"]) == 1


def test_the_dashboard_is_the_one_of_the_repository():
    original = json.loads((DEPLOY / "monitoring/dashboard.json").read_text())
    for objects in (kustomized(SHARED), charted("cluster")):
        [content] = only(objects, "ConfigMap")["data"].values()
        assert json.loads(content) == original


def test_the_links_of_the_alerts_lead_where_the_runbooks_are():
    option = ("--set", "monitoring.rules.runbooks=https://example.org/night")
    rule = only(charted("cluster", options=option), "PrometheusRule")
    links = [str(value) for path, value in leaves(rule) if path.endswith("runbook_url")]
    assert links
    assert all(link.startswith("https://example.org/night/") for link in links)
