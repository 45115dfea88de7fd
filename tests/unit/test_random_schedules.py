"""The real worker, recovery and core under random faults, crashes, rebalances and outages."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.kit.schedules import play

SCHEDULES = 400
STEPS = ("take", "begin", "send", "send_offsets", "commit", "committed", "rewind", "attend", "open")


def test_whatever_goes_wrong_every_record_has_its_effect_once_and_in_order() -> None:
    struck: Counter[str] = Counter()
    for seed in range(SCHEDULES):
        try:
            struck += play(seed)
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}")
    for step in STEPS:
        assert struck[f"fault at {step}"] > 5, f"nothing went wrong at {step}: {struck}"
    for kind in ("crash", "group", "claims", "doubt"):
        assert sum(n for name, n in struck.items() if name.startswith(kind)) > 50, kind
