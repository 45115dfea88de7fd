"""Administration: queries of commands and the doctor, and requests that the client lacks.

cluster         facts about brokers, topics and the group
answers         what brokers answer, as facts: settings, versions, rights, requests
group           members of the group, partitions that none of them owns
adoption        ids of the cluster and topics; another cluster's offsets, taken over
preflight       what must be there before a start
second_client   requests that confluent-kafka lacks, by kafka-python
isolated        a query that may cost its process
"""
