"""The profiler tree and every form of annotation."""

from __future__ import annotations

import dftrace_ai.run  # noqa: F401 - a parent's run is gone on with before the first span
