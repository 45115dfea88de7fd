"""Every way in which a process or a client ends while native records are held ends soon."""

import os
import subprocess
import sys

import pytest

from tests.kit.native_endings import WAYS

pytest.importorskip("hapax_fast")
WITHIN_S = 30
"""Far more than any takes; an end that waits for what is open never comes."""


@pytest.mark.parametrize("way", WAYS)
def test_a_process_ends_soon_with_native_records_in_its_hands(way):
    ended = subprocess.run(
        [sys.executable, "-m", "tests.kit.native_endings", way],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert ended.stdout == "held\n", ended.stderr
    assert ended.returncode == WAYS[way][1], ended.stderr
