"""``hapax doctor``: facts from the adapters, checks that judge them.

The checks are pure: facts in, findings out. A check never raises: what it cannot judge it says.
Where outputs go to another cluster, that is a second context, which names the first as its source.
"""
