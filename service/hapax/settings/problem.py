"""What is wrong with the settings."""

from __future__ import annotations

from typing import NamedTuple


class Problem(NamedTuple):
    """What is wrong, in one sentence.

    ``variables``: those it is about. A rule is not judged when one of them is wrong by itself.
    """

    variables: tuple[str, ...]
    sentence: str
