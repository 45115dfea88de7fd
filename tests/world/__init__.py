"""Other clients beside exactly-once topics, run and not believed: ``make world``.

clients.toml  each client: version, packages, and what its users are to do
clients/      one program each
installed     a client's packages and program, ready to run, in the user's cache
programs      what a program is asked and what it answers
topics        what they read: aborted, open, compacted, long records, and outputs of Hapax itself
handing       a group that goes to Hapax and back
reading       which records of a topic a client delivers, and the lag that its group keeps
measuring     what tools that measure say of groups with nothing left to read
writing       where keys land, how records are acknowledged, what fields survive
registries    values of other serdes read by Hapax's codecs, and the other way round
events        events of SDKs and connectors, and where their ids are
rounds        what was played of a run that was cut, and the record of whole runs
tables        the tables of docs/world, made of the record

Nothing here is played by make test or CI: it takes networks and minutes.
"""
