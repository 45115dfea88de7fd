"""CI skips only what its machine cannot have."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import skips

ROOT = Path(__file__).parents[2]
SKIPPED = {
    "test_mark.py": '@pytest.mark.skipif(True, reason="{}")\ndef test_it(): ...\n',
    "test_call.py": 'def test_it():\n    pytest.skip("{}")\n',
    "test_fixture.py": (
        '@pytest.fixture\ndef thing():\n    pytest.skip("{}")\ndef test_it(thing): ...\n'
    ),
    "test_file.py": 'pytest.importorskip("not_there", reason="{}")\n',
}


@pytest.mark.parametrize(
    ("variables", "reason", "outcome"),
    [
        ({"CI": "true"}, "Redis is not there", "1 failed, 3 errors in"),
        ({"CI": "true"}, "no gpg", "4 skipped in"),
        ({}, "Redis is not there", "4 skipped in"),
    ],
)
def test_a_skip_fails_in_ci_unless_its_reason_stands_in_the_table(
    variables, reason, outcome, tmp_path
):
    for name, text in SKIPPED.items():
        (tmp_path / name).write_text("import pytest\n" + text.format(reason))
    command = (sys.executable, "-m", "pytest", "-q", "-p", "tests.kit.skips")
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{ROOT / 'service'}", **variables}
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome in done.stdout
    told = done.stdout.count(f"\nCI skips nothing that this machine can have: Skipped: {reason}")
    assert told == (0 if "skipped" in outcome else 4)


def test_the_native_path_is_excused_where_no_compiler_is_and_nowhere_else(monkeypatch):
    reason = "could not import 'hapax_fast': No module named 'hapax_fast'"
    for buildable in (True, False):
        monkeypatch.setattr(skips, "buildable", lambda answer=buildable: answer)
        assert (skips.excuse(reason) is None) == buildable
        assert (skips.excuse("no C compiler on this machine") is None) == buildable
