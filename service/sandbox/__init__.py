"""Real Kafka and real Redis on this machine, for the demo, tests and benchmarks.

sandbox        Sandbox: both together, in a folder of their own
kafka_cluster  Kafka: one node or three, and the topics on them
broker         one node: its settings, its data, its process
metadata       what a broker answers when it is asked who and what is there
redis_server   Redis, with an append-only file
processes      what both are made of: a server process that can be killed, paused, restarted
watchdog       ends the servers of a process that died without a word
ports          loopback ports that nobody else is given
jars           Kafka's jars: fetched once, checked, kept in the user's cache
machine        Java, Maven and Redis on this machine, or the sentence that says how to get them
progress       what is said while somebody waits

Nothing here serves production, and nothing in production imports it.
"""

from service.sandbox.broker import Broker
from service.sandbox.kafka_cluster import Kafka
from service.sandbox.machine import SandboxError
from service.sandbox.redis_server import Redis
from service.sandbox.sandbox import Sandbox

__all__ = ["Broker", "Kafka", "Redis", "Sandbox", "SandboxError"]
