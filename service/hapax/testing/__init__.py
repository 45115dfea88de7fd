"""Kafka and the claim store in memory: the same ports, given time, faults on demand.

source, transaction              the ports of Kafka
claims, owners                   the ports of the claim store
broker, log, group, coordinator  the Kafka that they use
"""
