"""What the commands do. Commands parse and print; the work is here.

Called by commands and demo. Knows everything below.
"""
