"""Hapax: consume, transform, produce, and every record has its effect exactly once.

Business code needs two names from here, and Poison for records that no retry can help::

    from service import Output, Record

    def transform(record: Record) -> Output | None:
        return Output(record.value)

core        the promise, without I/O            adapters   the only talkers to Kafka and Redis
engines     who brings records, owns progress   telemetry  log line and metric from one fact
settings    environment to frozen groups        wiring     the only place that knows all of them
sandbox     real Kafka and Redis for tests      commands   the command line, one file each
demo        kills real workers, and counts      transforms built-in business code
"""

from service.core.errors import Poison
from service.core.records import Coordinates, Output, Record

__all__ = ["Coordinates", "Output", "Poison", "Record", "__version__"]
__version__ = "0.1.0"
