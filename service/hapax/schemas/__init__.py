"""Schemas: where they come from, and values to data and back."""
