"""The promise: what happens to one batch, decided without a broker, a clock or a disk.

records      Record, Output and the values that travel between the steps
errors       every error, named by what happens next
identity     step 2: the event's id
transform    step 4: business code, and what its answers mean
plan         step 5: claims and results to outputs, dead letters and progress
record_path  the records of a batch on their way, native or as the reference
changes      what a source reports between two batches
ports        Source, Transaction, Claims, Clock: all that the core knows of the world
exactly_once the seven steps of one batch, in order
begun        what is done for a batch before its turn
limits       bounds on rebuilds, dead letters and the size of a batch
retry_policy a batch that brokers refuse: smaller, or with records rejected
settled      what one batch came to
audit        names and numbers of an audit; audit_rows: records to the rows that it judges
micro_batches  whether a micro-batch of DataFrames is due, by its marker
"""
