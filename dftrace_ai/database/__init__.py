"""A DuckDB that opens nothing by itself, for what asks SQL; the extra `analysis` has it."""
