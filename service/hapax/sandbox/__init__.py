"""Real Kafka and real Redis on this machine, for the demo, tests and benchmarks.

Nothing here is used in production but the jars of Spark's connector, which are part of the images.
"""

from hapax.sandbox.broker import Broker, KafkaCluster, SandboxTopic
from hapax.sandbox.guard import Guard, Rights
from hapax.sandbox.machine import SandboxError
from hapax.sandbox.sandbox import Sandbox, secure_environment
from hapax.sandbox.servers import Prometheus, Redis, RegistryServer, SparkCluster, monitoring

__all__ = [
    "Broker",
    "Guard",
    "KafkaCluster",
    "Prometheus",
    "Redis",
    "RegistryServer",
    "Rights",
    "Sandbox",
    "SandboxError",
    "SandboxTopic",
    "SparkCluster",
    "monitoring",
    "secure_environment",
]
