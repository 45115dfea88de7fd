"""A project of one's own: its files, and a pipeline that runs while they are written.

project   the files that ``hapax init`` writes, from files/
session   what ``hapax dev`` runs: a sandbox on the ports of the settings, and the service in a
          folder, started again when files change
changes   which files have changed

No image has this: like the sandbox it is for a machine to try things on.
"""
