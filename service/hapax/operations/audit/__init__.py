"""The audit: every input record has its effects exactly once, or is named.

``run`` leads from settings to a verdict. ``judgement`` states the rules in SQL, and one of two
engines answers it: ``local`` in this process with bounded memory (SQLite), or ``spark``.
"""
