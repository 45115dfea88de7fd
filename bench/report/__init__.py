"""docs/performance.md, its pictures, README's sentence: all from docs/performance/runs.json.

page    the page, from its template page.md
goals   what was aimed at, and whether it is reached
tables  the tables
plots   the pictures
"""

from bench.report.page import KEPT, PAGE, README, keep, page, short, tables_of, with_short

__all__ = ["KEPT", "PAGE", "README", "keep", "page", "short", "tables_of", "with_short"]
