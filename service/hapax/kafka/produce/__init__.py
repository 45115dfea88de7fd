"""Producing: the Transaction port, and everything else that writes.

transaction    outputs and offsets, exactly once
weaker         the two weaker guarantees
fences         transactional ids that are fenced: of lanes, of earlier versions
producer       the client and its delivery reports
doubts         requests that may still arrive: by counted requests, or by the client's lines
requests       the native count of requests
base           what the producers of all guarantees share
call_timeout   calls that may never return
micro_batch    a micro-batch and its marker in one transaction
published      which micro-batches are in the log
standalone     transactions without a source: replays
group_offsets  offsets of an idle group, moved in a transaction
publish        records from outside, for the input

Does not know consume: offsets arrive as a value (core/offset_commit.py).
"""
