"""What Hapax costs, against a plain loop on the same brokers: see README.md."""
