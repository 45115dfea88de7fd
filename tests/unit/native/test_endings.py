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
    code = WAYS[way][1]
    # Where the tracer of LeakSanitizer fails, as it may among threads that end, it ends the process
    # with a code of its own: leaks are looked for in those alone that end with that code anyway.
    leaks = f"{os.environ.get('ASAN_OPTIONS', '')}:detect_leaks={int(code == 0)}"
    more = {"PYTHONPATH": os.pathsep.join(sys.path), "ASAN_OPTIONS": leaks}
    ended = run_captured(command, timeout=WITHIN_S, env=os.environ | more)
    assert ended.stdout == "held\n", ended.stderr
    assert ended.returncode == code, ended.stderr
