"""Hapax: consume, transform, produce, and every record has its effect exactly once.

Business code needs two names from here, Poison for records that no retry can make succeed, and
RetryLater for those that may succeed after a while::

    from hapax import Output, Record

    def transform(record: Record) -> Output | None:
        return Output(record.value)

processing  how a record becomes an effect      engines    the worker, the Spark driver
core        what all share, without I/O         cluster    what brokers report, judged
kafka       all calls to Kafka                  claims     all calls to Redis
operations  what the commands do                wiring     settings to a running service
settings    environment to frozen groups        telemetry  log line and metric from one fact
commands    the command line, one file each     transforms built-in business code
sandbox     real Kafka and Redis for tests      testing    a pipeline in memory, for tests
demo        kills real workers, and counts      dev        a project of one's own
publish     records from outside, without loss  spool      records on disk, without Kafka
schemas     values to data, by a registry
"""

from hapax.core.errors import Poison, RetryLater
from hapax.core.records import Coordinates, Output, Record
from hapax.processing.state import State

__all__ = ["Coordinates", "Output", "Poison", "Record", "RetryLater", "State", "__version__"]
__version__ = "0.1.0"
