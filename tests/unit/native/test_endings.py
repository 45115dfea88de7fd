"""Every way in which a process or a client ends while native records are held ends soon."""

import os
import sys

import pytest

from tests.kit.commands import run_captured
from tests.kit.native_endings import WAYS

pytest.importorskip("hapax_fast")
WITHIN_S = 30
"""Far more than any takes; an end that waits for what is open never comes."""


@pytest.mark.parametrize("way", WAYS)
def test_a_process_ends_soon_with_native_records_in_its_hands(way):
    command = [sys.executable, "-m", "tests.kit.native_endings", way]
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = run_captured(command, timeout=WITHIN_S, env=os.environ | path)
    assert ended.stdout == "held\n", ended.stderr
    assert ended.returncode == WAYS[way][1], ended.stderr
