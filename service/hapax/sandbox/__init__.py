"""Real Kafka and real Redis on this machine, for the demo, tests and benchmarks.

sandbox        Sandbox: both together, in a folder of their own
kafka_cluster  Kafka: one node or three, and the topics on them
broker         one node: its settings, its data, its process, and what it answers
guard          how a guarded sandbox authenticates clients: listeners, certificates, users, tokens
rights         users of a guarded sandbox, and what they may do
redis_server   Redis, with an append-only file
http_servers   Apicurio Registry, which gives schemas; Prometheus, with alert rules
spark_cluster  a standalone Spark cluster: its master and workers
processes      what all are made of: a process that can be killed, paused, restarted; its ports
watchdog       ends the servers of a process that was killed
jars           what Kafka and the registry run on: fetched once, checked, kept in the user's cache
archiving      archives of classes, which JVMs map instead of reading them
machine        Java, Redis and more on this machine, or an error that says how to install them

Nothing here is used in production but the jars of Spark's connector, which are part of the images.
"""

from hapax.sandbox.broker import Broker
from hapax.sandbox.guard import Guard
from hapax.sandbox.http_servers import Prometheus, RegistryServer, monitoring
from hapax.sandbox.kafka_cluster import KafkaCluster, SandboxTopic
from hapax.sandbox.machine import SandboxError
from hapax.sandbox.redis_server import Redis
from hapax.sandbox.rights import Rights, secure_environment
from hapax.sandbox.sandbox import Sandbox
from hapax.sandbox.spark_cluster import SparkCluster

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
