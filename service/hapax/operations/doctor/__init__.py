"""``hapax doctor``: facts from the adapters, checks that judge them.

examination  looks at everything once, and lets the checks judge
check        what a check gets and answers with, and how it is declared; findings: what is shown
process      libraries, limits
addresses    the way to the brokers, and what they can
encryption   what is sent unencrypted, and what is not verified
brokers      how the brokers are set
topics       the topics; topic_settings: how they are set; durability: how safe records are there
positions    of which cluster, in the logs, what holds readers up; retention: what it deletes
group        the consumer group, rights of the user; acls: the rights themselves
claims       the claim store
bundle       an archive for support

The checks are pure: facts in, findings out. A check never raises: what it cannot judge it says.
"""
