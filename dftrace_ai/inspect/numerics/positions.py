"""Where each number of a record lies in a row, which is a record that stays on its device."""

from __future__ import annotations

from dftrace_ai.inspect.numerics.record import FIELDS

__all__ = [
    "ABSOLUTE_SUM",
    "AMAX",
    "AMIN_NONZERO",
    "M2",
    "MAX",
    "MEAN",
    "MIN",
    "N_FINITE",
    "N_INF",
    "N_NAN",
    "N_OVER",
    "N_TOTAL",
    "N_UNDER",
    "N_ZERO",
    "ROW_FIELDS",
    "SCALE_MAX",
    "SCALE_MIN",
    "SQUARE_ERROR",
]

ROW_FIELDS = len(FIELDS)

N_FINITE = FIELDS.index("n_finite")
MEAN = FIELDS.index("mean")
M2 = FIELDS.index("m2")
ABSOLUTE_SUM = FIELDS.index("absolute_sum")
MIN = FIELDS.index("min")
MAX = FIELDS.index("max")
AMIN_NONZERO = FIELDS.index("amin_nonzero")
AMAX = FIELDS.index("amax")
N_NAN = FIELDS.index("n_nan")
N_INF = FIELDS.index("n_inf")
N_ZERO = FIELDS.index("n_zero")
N_OVER = FIELDS.index("n_over")
N_UNDER = FIELDS.index("n_under")
N_TOTAL = FIELDS.index("n_total")
SQUARE_ERROR = FIELDS.index("square_error")
SCALE_MIN = FIELDS.index("scale_min")
SCALE_MAX = FIELDS.index("scale_max")
