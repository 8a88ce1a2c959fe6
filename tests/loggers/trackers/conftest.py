"""What is particular to each tracker asserts, too."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("trackers.readers")
