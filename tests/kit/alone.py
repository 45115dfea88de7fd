"""Promises in seconds, which say something only where a test has the machine for itself.

A test that takes ``in_time`` is played twice: in company, where its seconds are not looked at, and
once more marked ``alone``, where they are.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

InTime = Callable[[float, float], None]


@pytest.fixture(params=["in company", pytest.param("in time", marks=pytest.mark.alone)])
def in_time(request: pytest.FixtureRequest) -> InTime:
    """Return what asserts that something took less than was promised."""

    def judge(took_s: float, promised_s: float) -> None:
        kept = took_s < promised_s
        assert kept or request.param == "in company", f"{took_s:.2f} s, promised {promised_s:g} s"

    return judge
