"""The former name of the package, for what a checkout configured with it: use ``hapax``.

``from service import Record`` and HAPAX_TRANSFORM=service.transforms.records:identity still work in
one; the wheel and the images hold ``hapax`` alone.
"""

import hapax
from hapax import Coordinates, Output, Poison, Record, __version__

__path__ += hapax.__path__

__all__ = ["Coordinates", "Output", "Poison", "Record", "__version__"]
