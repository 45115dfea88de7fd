"""A DataFrame function as a streaming query, with the same guarantee.

query           load, check, start and stop it
run             follow it to its end, and keep its marker
source_options  settings in the words of Spark's source
sink            the exactly-once sink
rows            DataFrame rows as records
staging         rows that wait for the driver
checksums       damage is found before anything is decoded
"""
