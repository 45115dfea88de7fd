"""A DataFrame function as a streaming query, with the same guarantee."""
