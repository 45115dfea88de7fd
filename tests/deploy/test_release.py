"""docs/release.md: what is written there runs, up to where it leaves this machine."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

import hapax
from deploy.release import NAMES_PROJECT, NAMES_VERSION, disagreements, write
from hapax.engines.spark.session import connector
from hapax.jars import locked
from tests.deploy.steps import ROOT, stages
from tests.kit.commands import output_of, run_captured

PAGE = ROOT / "docs/release.md"
VERSION = hapax.__version__


def shell(title: str) -> str:
    """Return the commands of a section."""
    section = PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return "\n".join(re.findall(r"(?ms)^```sh\n(.*?)^```$", section))


def typed(script: str, folder: Path, **environment: str) -> str:
    command = ["/bin/sh", "-euc", script]
    return output_of(command, cwd=folder, env=os.environ | environment, timeout=60)


@pytest.fixture
def tagged(tmp_path: Path) -> Path:
    """Return a repository with the files that name the version, ready to be released."""
    folder = tmp_path / "checkout"
    for name in {*NAMES_VERSION, *NAMES_PROJECT}:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / name).read_text()
        (folder / name).write_text(text.replace("hapax.example", "hapax.test"))
    changelog = (ROOT / "CHANGELOG.md").read_text()
    unreleased = changelog.partition("## [Unreleased]")[2].partition("\n## [")[0]
    (folder / "CHANGELOG.md").write_text(changelog.replace(unreleased, "\n", 1))
    name = "-c user.name=a -c user.email=a@b.example -c commit.gpgsign=false -c tag.gpgsign=false"
    typed(f"git init -q; git add .; git {name} commit -qm one; git tag v{VERSION}", folder)
    return folder


def test_a_commit_agrees_with_its_tag(tagged):
    assert disagreements(tagged, VERSION, f"v{VERSION}") == []
    assert disagreements(ROOT, VERSION, None) == []


@pytest.mark.parametrize("name", NAMES_VERSION)
def test_a_file_that_names_another_version_is_named(name, tagged):
    text = (tagged / name).read_text()
    (tagged / name).write_text(text.replace(VERSION, "7.0.0"))
    assert disagreements(tagged, VERSION, None) == [f"{name} names 7.0.0, not {VERSION}"]


def test_a_tag_of_another_version_or_commit_is_named(tagged):
    (other,) = disagreements(tagged, VERSION, "v7.0.0")[:1]
    assert other == f"the tag is v7.0.0, and the version is {VERSION}"
    with (tagged / "CHANGELOG.md").open("a") as file:
        file.write("\n")
    (changed,) = disagreements(tagged, VERSION, f"v{VERSION}")
    assert "not committed" in changed
    typed("git -c user.name=a -c user.email=a@b.example commit -qam two", tagged)
    (elsewhere,) = disagreements(tagged, VERSION, f"v{VERSION}")
    assert "not at this commit" in elsewhere


def test_unreleased_entries_and_addresses_of_examples_are_named(tagged):
    changelog = tagged / "CHANGELOG.md"
    text = changelog.read_text().replace("## [Unreleased]", "## [Unreleased]\n\n- More.", 1)
    changelog.write_text(text)
    for name in NAMES_PROJECT:
        shutil.copy(ROOT / name, tagged / name)
    found = disagreements(tagged, VERSION, f"v{VERSION}")
    assert any("Unreleased" in line for line in found)
    assert [line.split()[0] for line in found if "example" in line] == [*NAMES_PROJECT]


@pytest.mark.deep
def test_a_release_is_of_the_commit_and_is_signed_and_verified_as_the_page_says(tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("no git checkout")
    bills, folder = tmp_path / "sbom", tmp_path / "build/release"
    bills.mkdir()
    for image in ("worker", "spark"):
        (bills / f"{image}.json").write_text("{}")
    (bills / "licences.md").write_text("")
    write(bills, folder)
    found = sorted(file.name for file in folder.iterdir())
    [native] = (name for name in found if name.endswith(".whl"))
    assert re.fullmatch(rf"hapax_kafka-{VERSION}-cp3\d+-cp3\d+-manylinux_\S+\.whl", native)
    assert sorted({*found} - {native}) == [
        "SHA256SUMS",
        f"hapax-spark-{VERSION}.cdx.json",
        f"hapax-worker-{VERSION}.cdx.json",
        f"hapax_kafka-{VERSION}.tar.gz",
        f"licences-{VERSION}.md",
    ]
    if shutil.which("gpg") is None:
        pytest.skip("no gpg")
    # gpg has sockets in its home, whose path may not be long.
    home = typed("mktemp -d", tmp_path).strip()
    try:
        key = "gpg --batch --quiet --passphrase '' --quick-gen-key release@hapax.example ed25519"
        typed(key, tmp_path, GNUPGHOME=home)
        typed(shell("Sign"), tmp_path, GNUPGHOME=home)
        assert typed(shell("Verify"), folder, GNUPGHOME=home).count(": OK") == 5
        with (folder / f"licences-{VERSION}.md").open("a") as file:
            file.write("changed\n")
        with pytest.raises(AssertionError, match="FAILED"):
            typed(shell("Verify"), folder, GNUPGHOME=home)
    finally:
        typed(f"gpgconf --homedir {home} --kill all", tmp_path)
        shutil.rmtree(home, ignore_errors=True)


def test_the_images_are_built_with_the_arguments_that_the_dockerfile_has():
    arguments = {
        text.partition("=")[0] for stage in stages().values() for text in stage.texts("ARG")
    }
    script = shell("Images")
    given = re.findall(r"--build-arg (\w+)=", script)
    assert set(given) <= arguments
    assert {"PYTHON_IMAGE", "REVISION"} <= set(given)
    assert set(re.findall(r"--target (\w+)", script)) == {"worker", "spark"}
    typed(f"docker() {{ :; }}\ngit() {{ :; }}\n{script}", ROOT)  # the shell can read it


# -- The bill of materials names every library of the lock with every hash and the licence of it.


@pytest.fixture(scope="module")
def bills(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sbom")
    subprocess.run([sys.executable, "-m", "deploy.sbom", folder], check=True, cwd=ROOT)
    return folder


def lock(image: str) -> set[tuple[str, str, str]]:
    """Return name, version and hash, for each hash of each library of a lock."""
    text = (ROOT / f"requirements/{image}.txt").read_text().replace("\\\n", " ")
    found = set()
    for line in text.splitlines():
        if pin := re.match(r"([\w.-]+)==(\S+)", line):
            hashes = re.findall(r"--hash=sha256:(\w+)", line)
            found |= {(pin[1], pin[2], each) for each in hashes}
    return found


def told(component: Any) -> set[tuple[str, str, str]]:
    sources = [component, *component.get("externalReferences", ())]
    return {
        (component["name"], component["version"], each["content"])
        for source in sources
        for each in source.get("hashes", ())
    }


@pytest.mark.deep
@pytest.mark.parametrize("image", ["worker", "spark"])
def test_the_bill_is_the_lock(image, bills):
    bill = json.loads((bills / f"{image}.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    about = bill["metadata"]["component"]
    assert (about["name"], about["version"]) == ("hapax-kafka", hapax.__version__)
    jars = {(jar.artifact, jar.version, jar.sha256) for jar in locked(connector())}
    wanted = lock(image) | (jars if image == "spark" else set())
    assert len(wanted) > 100
    assert set().union(*map(told, bill["components"])) == wanted
    purls = [component["purl"] for component in bill["components"]]
    assert len(set(purls)) == len(purls)
    assert all(purl.startswith(("pkg:pypi/", "pkg:maven/")) for purl in purls)
    unstated = [each["name"] for each in bill["components"] if "licenses" not in each]
    assert len(unstated) < 6, f"not installed here, or of another version: {unstated}"


@pytest.mark.deep
@pytest.mark.parametrize("image", ["worker", "spark"])
def test_the_bill_is_of_the_form_that_others_read(image, bills):
    text = (bills / f"{image}.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


# -- make licences: what an image holds is under a licence that pyproject.toml allows ------

ALLOWED = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pip-licenses"]["allow-only"]


def listed(*options: str) -> subprocess.CompletedProcess[str]:
    """Run the command of ``make licences``."""
    packages = (ROOT / "Makefile").read_text().partition("--packages $$(")[2].partition(")")[0]
    names = output_of(["/bin/sh", "-c", packages], cwd=ROOT).split()
    assert len(names) > 60
    command = [sys.executable, "-m", "piplicenses", *options, "--packages", *names]
    return run_captured(command, cwd=ROOT)


def test_every_library_of_the_images_is_under_a_licence_that_is_allowed():
    done = listed()
    assert done.returncode == 0, done.stderr
    assert {"confluent-kafka", "kafka-python", "pyspark"} <= set(done.stdout.split())


def test_a_licence_that_is_not_allowed_ends_it():
    fewer = ";".join(name for name in ALLOWED.split(";") if name != "Apache-2.0")
    done = listed(f"--allow-only={fewer}")
    assert (done.returncode, "Apache-2.0" in done.stderr) == (1, True)


# -- docs/ as a site: it builds offline, and what mkdocs would warn of is an error ---------


@pytest.mark.deep  # meta tests find dead links without mkdocs
def test_the_site_builds_without_a_warning_and_has_every_page(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"]
    output_of(list(map(str, command)), cwd=ROOT)
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"README"}
    assert pages - {page.parent.name for page in (tmp_path / "site").glob("*/index.html")} == set()
    index = (tmp_path / "site/index.html").read_text()
    assert "quickstart/" in index
    loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)', index)
    assert loaded == [], "the site needs nothing from elsewhere"
