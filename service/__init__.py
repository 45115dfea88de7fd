"""The former name of the package, for transforms of a checkout that import it: use ``hapax``."""

from hapax import Coordinates, Output, Poison, Record, __version__

__all__ = ["Coordinates", "Output", "Poison", "Record", "__version__"]
