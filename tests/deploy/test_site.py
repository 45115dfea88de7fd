"""docs/ as a site: it builds offline, and what mkdocs would warn of is an error."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.deploy.steps import ROOT


@pytest.mark.deep  # meta tests find dead links without mkdocs
def test_the_site_builds_without_a_warning_and_has_every_page(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"]
    done = subprocess.run(
        list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"README"}
    built = {page.parent.name for page in (tmp_path / "site").glob("*/index.html")}
    assert pages - built == set()
    index = (tmp_path / "site/index.html").read_text()
    assert "quickstart/" in index
    loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)', index)
    assert loaded == [], "the site needs nothing from elsewhere"
