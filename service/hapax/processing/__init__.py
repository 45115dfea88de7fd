"""How a record becomes an effect, without a broker, a clock or a disk; to be read in this order.

exactly_once   the seven steps of one batch, and what they share
identity       step 2: the id of each event
deduplicate    step 3: who owns an id, and which duplicate is dropped
transform      step 4: the function of the user, and what its answers mean
answers        which records of a batch are called, and what is known of the others
call_window    when a call may begin, and how often it is tried
retry_later    a record that waits in the retry topic for a later try
state          what a transform keeps for the key of its record, as it sees it
keyed_state    state in the transaction of the outputs
plan           step 5: answers to outputs, dead letters and progress
dead_letters   records that failed, as their topic holds them
limits         bounds of attempts, batches and dead letters
batch_result   step 7: what the batch came to
crash_markers  which record a process died over
"""
