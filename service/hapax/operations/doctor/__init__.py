"""``hapax doctor``: facts from the adapters, checks that judge them.

examination  looks at everything once, and lets the checks judge
check        what a check gets and answers with, and how it is declared; findings: what is shown
connections  this process, the way to brokers and stores, encryption
brokers      how the brokers are set; how durable records are
topics       the topics, and how they are set
positions    offsets in their logs, what holds readers up, what retention deletes
neighbours   producers of the inputs, the consumer group, readers, the user's rights
stores       the claim store and the schema registry
acls         the least rights of a pipeline
bundle       an archive for support

The checks are pure: facts in, findings out. A check never raises: what it cannot judge it says.
Where outputs go to another cluster, that is a second context, which names the first as its source.
"""
