"""Real Kafka and real Redis on this machine, for the demo, tests and benchmarks.

sandbox        Sandbox: both together, in a folder of their own
kafka_cluster  Kafka: one node or three, and the topics on them
broker         one node: its settings, its data, its process
formatted      data folders of brokers, copied from the first
metadata       what a broker answers about the cluster's nodes and topics
guard          how a guarded sandbox authenticates clients: listeners, certificates, users, tokens
tls            an authority of its own, and the certificates that it signs
oauth          a token service for OAUTHBEARER
login          one user with all rights, and the variables to log in as that user
rights         users of a guarded sandbox, and what they may do
redis_server   Redis, with an append-only file
registry_server  Apicurio Registry, which gives schemas
spark_cluster  a standalone Spark cluster: its master and workers
prometheus_server  Prometheus, with alert rules
processes      what both are made of: a server process that can be killed, paused, restarted
watchdog       ends the servers of a process that was killed
ports          loopback ports that no other process is given
jars           what Kafka and the registry run on: fetched once, checked, kept in the user's cache
download       files of a Maven repository, without Maven
class_archive  classes that a JVM maps instead of reading them: where they are
archiving      how they are made, once
connector      Spark's Kafka connector, the same way
machine        Java, Redis and more on this machine, or an error that says how to install them
java_home      what makes the Java of a wheel start Spark
progress       what is shown during a long wait

Nothing here is used in production but the connector, which is part of the images.
"""

from hapax.sandbox.broker import Broker
from hapax.sandbox.guard import Guard
from hapax.sandbox.kafka_cluster import KafkaCluster, SandboxTopic
from hapax.sandbox.login import secure_environment
from hapax.sandbox.machine import SandboxError
from hapax.sandbox.prometheus_server import Prometheus, monitoring
from hapax.sandbox.redis_server import Redis
from hapax.sandbox.registry_server import RegistryServer
from hapax.sandbox.rights import Rights
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
