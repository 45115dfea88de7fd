"""Reading alongside the pipeline: joins no group, commits nothing."""
