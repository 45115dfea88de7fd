"""Administration: queries of commands and the doctor, and requests that the client lacks.

cluster         facts about brokers, topics and the group
answers         what brokers answer, as facts: settings, versions, rights, requests
group           members of the group, partitions that none of them owns
ids             ids of the cluster and of topics
preflight       what must be there before a start
second_client   requests that confluent-kafka lacks, by kafka-python
"""
