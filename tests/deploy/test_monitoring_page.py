"""docs/alerts.md: a section for each alert, and in each what somebody needs at three at night."""

from __future__ import annotations

import re

from tests.deploy.test_monitoring_rules import NAMES, ROOT
from tests.meta.statements import commands

PAGE = ROOT / "docs/alerts.md"
PARTS = ["Meaning", "Impact", "Diagnosis", "Action"]
SECTIONS = dict(re.findall(r"(?ms)^## (Hapax\w+)\n(.*?)(?=^## |\Z)", PAGE.read_text()))


def test_each_alert_has_its_section_in_the_order_of_the_rules():
    assert list(SECTIONS) == NAMES


def test_a_section_says_what_it_means_what_it_does_where_to_look_and_what_to_do():
    for name, section in SECTIONS.items():
        assert re.findall(r"(?m)^\*\*(\w+)\.\*\*", section) == PARTS, name
        diagnosis = section.partition("**Diagnosis.**")[2].partition("**Action.**")[0]
        assert re.findall(r"(?m)^\$ hapax \w+", diagnosis), name
        assert list(commands(section, PAGE)) == [], name
