"""A function whose process looks at the claim store each second in place of each minute."""

from hapax.engines import membership
from tests.kit.orders import obey

membership.LOOK_S = 1.0  # type: ignore[misc] # a test does not wait for a minute

__all__ = ["obey"]
