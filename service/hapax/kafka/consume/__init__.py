"""Consuming: the Source port on a Kafka consumer.

source           what the engine calls
client           the consumer, every call watched
consumer_events  what the client reports in place of records
native_intake    records of routed partitions, for the native path
decode           messages to the records of a batch
partition_state  what is known of each partition
positions        where to continue reading
beginning        where a new group begins
topic_check      whether positions belong to this cluster and topic
range_source     the Source of one Spark task
group_member     a member that reads nothing: the Spark driver
"""
