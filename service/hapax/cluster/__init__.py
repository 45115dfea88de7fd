"""What brokers report of topics, groups and transactions, and what follows from it. Pure."""
