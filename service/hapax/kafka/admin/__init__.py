"""Administration: queries of commands and the doctor, and requests that the client lacks.

cluster         facts about brokers, topics and the group
results         answers of the admin client as facts
group           members of the group, partitions that none of them owns
adoption        another cluster's offsets, taken over
preflight       what must be there before a start
acl_check       whether a transactional id is allowed
api_versions    which requests the brokers take
certificates    when certificates expire
requests, wire  requests that the client lacks, to the broker that can answer
isolated        a query that may cost its process
"""
