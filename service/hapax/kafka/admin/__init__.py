"""Administration: queries of commands and the doctor, and requests that the client lacks.

cluster         facts about brokers, topics and the group
answers         what brokers answer, as facts: settings, versions of requests, rights
group           members of the group, partitions that none of them owns
ids             ids of the cluster and of topics
preflight       what must be there before a start
requests, wire  requests that the client lacks, to the broker that can answer
"""
