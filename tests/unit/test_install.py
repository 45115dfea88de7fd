"""requirements/install.py: uv does as pip is configured, and pip installs where uv does not."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "requirements/install.py"


@pytest.fixture
def install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_uv_is_told_what_pip_is_configured_to_do(install, tmp_path, monkeypatch):
    for variable in ("PIP_CERT", "PIP_FIND_LINKS", "PIP_INDEX_URL", "UV_DEFAULT_INDEX"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = http://127.0.0.1/simple?a=b\ncert = /global.pem\n"
        "extra-index-url = http://127.0.0.1/one\n    http://127.0.0.1/two\n"
        "[install]\ncert = /install.pem\nfind-links = /wheels\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_FIND_LINKS", "/elsewhere")
    told = install._as_pip()
    assert told["UV_DEFAULT_INDEX"] == "http://127.0.0.1/simple?a=b"
    assert told["UV_INDEX"] == "http://127.0.0.1/one http://127.0.0.1/two"
    assert told["SSL_CERT_FILE"] == "/install.pem"
    assert told["UV_FIND_LINKS"] == "/elsewhere"

    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1/mine")
    assert install._as_pip()["UV_DEFAULT_INDEX"] == "http://127.0.0.1/mine"


@pytest.mark.parametrize(
    ("failing", "installed_by"), [("nothing", "uv"), ("uv.txt", "pip"), ("uv pip", "pip")]
)
def test_what_uv_cannot_install_pip_installs(
    install, failing, installed_by, tmp_path, monkeypatch, capsys
):
    calls = tmp_path / "calls"
    tools = {name: tmp_path / name for name in ("pip", "uv")}
    for name, tool in tools.items():
        tool.write_text(
            f'#!/bin/sh\necho "{name} $*" >> {calls}\n'
            f'case "{name} $*" in *"{failing}"*) exit 1;; esac\n',
            encoding="utf-8",
        )
        tool.chmod(0o755)
    monkeypatch.setattr(install, "FOLDER", tmp_path)
    monkeypatch.setattr(install, "PIP", (str(tools["pip"]), "install"))
    monkeypatch.setattr(install, "UV", (str(tools["uv"]), "pip"))
    noted = "lib/python3/site-packages/hapax_kafka-1.dist-info/extra_metadata/a.not_built"
    (tmp_path / noted).parent.mkdir(parents=True)
    (tmp_path / noted).write_text("no compiler", encoding="utf-8")

    assert install.main(["one.txt"]) == 0

    lines = calls.read_text(encoding="utf-8").splitlines()
    made = [line.split()[0] for line in lines if "config list" not in line][-2:]
    assert made == [installed_by] * 2
    assert capsys.readouterr().err.endswith("slower: no compiler\n")
