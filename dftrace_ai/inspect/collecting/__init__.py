"""A tensor that was seen becomes a record, and the records of a step are kept."""
