"""A project of one's own: its files, and a pipeline that runs while they are written.

No image has this: like the sandbox it is for a machine to try things on.
"""
