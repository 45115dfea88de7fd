"""Consuming: the Source port on a Kafka consumer."""
