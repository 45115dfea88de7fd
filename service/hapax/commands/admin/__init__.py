"""Commands that show or change what a cluster or a claim store holds."""
