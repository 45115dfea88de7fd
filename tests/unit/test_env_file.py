"""Settings from files and from ``--set``: what counts more, and what is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hapax.core.errors import ConfigurationError
from hapax.kafka.property_names import nearest_property, property_names
from hapax.settings.env_file import assignment, read_env_file
from tests.kit.commands import run_captured
from tests.unit.test_settings import REQUIRED

TRANSFORM = (
    "from hapax import Output\n\n\ndef transform(record):\n    return Output(record.value)\n"
)


def test_a_file_is_read_as_compose_and_as_a_shell_read_it(tmp_path):
    file = tmp_path / "settings.env"
    file.write_text(
        "# all of them\n\nHAPAX_APP=orders\n export HAPAX_DEDUP__ID='json:/id,key'\n"
        'QUOTED="a b"\nEMPTY=\nHASH=a#b\nEQUALS=a=b\nHALF="a\n'
    )
    assert read_env_file(file) == {
        "HAPAX_APP": "orders",
        "HAPAX_DEDUP__ID": "json:/id,key",
        "QUOTED": "a b",
        "EMPTY": "",
        "HASH": "a#b",
        "EQUALS": "a=b",
        "HALF": '"a',
    }


def test_every_line_that_is_none_is_named_and_never_shown(tmp_path):
    file = tmp_path / "settings.env"
    file.write_text("HAPAX_APP=orders\nhunter2\n2X=1\n")
    with pytest.raises(ConfigurationError) as caught:
        read_env_file(file)
    assert caught.value.problems == [
        f"{file}, line {number}: write NAME=VALUE" for number in (2, 3)
    ]


def test_a_file_that_is_missing_is_a_problem_in_one_sentence(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        read_env_file(tmp_path / "none.env")


@pytest.mark.parametrize("text", ["HAPAX_APP", "=orders", "HAPAX APP=orders", ""])
def test_what_is_no_assignment_is_refused(text):
    with pytest.raises(ConfigurationError, match="NAME=VALUE"):
        assignment(text)


def hapax(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("HAPAX_")}
    return run_captured(
        [sys.executable, "-P", "-c", "from hapax.__main__ import main; main()", *words],
        cwd=folder,
        env=inherited | environ,
        timeout=60,
    )


def test_set_counts_more_than_the_environment_and_that_more_than_a_file(tmp_path):
    lines = {**REQUIRED, "HAPAX_APP": "file", "HAPAX_INSTANCE": "file-0"}
    lines["HAPAX_DEDUP__TTL"] = "2h"
    text = "".join(f"{name}={value}\n" for name, value in lines.items())
    (tmp_path / "settings.env").write_text(text)
    words = ("config", "show", "--env-file", "settings.env", "--set", "HAPAX_APP=typed", "--json")
    done = hapax(tmp_path, *words, HAPAX_APP="environment", HAPAX_INSTANCE="environment-0")
    assert done.returncode == 0, done.stderr
    for name, value in (("APP", "typed"), ("INSTANCE", "environment-0"), ("DEDUP__TTL", "2h")):
        assert f'"HAPAX_{name}": {{\n    "value": "{value}"' in done.stdout


def test_a_mistake_before_the_command_ends_with_2_and_a_sentence(tmp_path):
    for words in (("--set", "HAPAX_APP"), ("--env-file", "none.env")):
        for placed in ((*words, "config", "check"), ("run", *words), ("trace", "a", *words)):
            done = hapax(tmp_path, *placed)
            assert done.returncode == 2, placed
            assert done.stderr.startswith("hapax: "), done.stderr
            assert len(done.stderr.splitlines()) == 1, done.stderr


def test_run_takes_files_and_assignments_and_refuses_what_is_wrong_in_them(tmp_path):
    (tmp_path / "settings.env").write_text("HAPAX_APP=a b\n")
    done = hapax(tmp_path, "run", "--env-file", "settings.env", "--set", "HAPAX_NONE=1")
    assert done.returncode == 2
    assert 'hapax: HAPAX_APP="a b"' in done.stderr
    assert "HAPAX_NONE is read by nothing" in done.stderr


def interpreted(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command as its script does: with the script's folder on the path, and no other."""
    code = "import sys; sys.path.pop(0); from hapax.__main__ import main; main()"
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("HAPAX_")}
    return run_captured(
        [sys.executable, "-c", code, *words], cwd=folder, env=inherited | REQUIRED, timeout=60
    )


def test_the_check_imports_the_transform_from_the_working_folder(tmp_path):
    words = ("config", "check", "--set", "HAPAX_TRANSFORM=rule:transform")
    absent = interpreted(tmp_path, *words)
    assert absent.returncode == 2
    assert "cannot import rule: ModuleNotFoundError" in absent.stderr
    (tmp_path / "rule.py").write_text(TRANSFORM)
    done = interpreted(tmp_path, *words)
    assert (done.returncode, done.stdout) == (0, "settings are fine\n"), done.stderr


def test_the_check_knows_the_properties_of_the_client_and_names_all_faults(tmp_path):
    properties = 'HAPAX_KAFKA__PROPERTIES={"fetch.max.bites": 1}'
    words = ("config", "check", "--set", properties, "--set", "HAPAX_TRANSFORM=none:transform")
    done = interpreted(tmp_path, *words)
    assert done.returncode == 2
    assert "cannot import none" in done.stderr
    assert 'property: "fetch.max.bites": did you mean fetch.max.bytes?' in done.stderr


def test_the_names_of_properties_are_those_that_the_client_takes():
    names = set(property_names())
    assert len(names) > 150
    assert names >= {"linger.ms", "sasl.username", "queued.max.messages.kbytes", "acks"}
    assert nearest_property('No such configuration property: "nothing.like.it"') == ""
    assert nearest_property('Invalid value for configuration property "linger.ms"') == ""
