"""Checkpoints and compiled code change nothing of what FP8, features and statistics come to."""

from __future__ import annotations

import os

import pytest
from checkpoint_matrix import hold_against_fp64, sample, share

# The part of the whole matrix that is gone through; the rest of the suite has a sample of it.
WANTED = os.environ.get("DFTRACE_INSPECT_MATRIX")
CASES = sample(eager=24) if WANTED is None else share(float(WANTED))


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_a_training_comes_to_the_same_as_in_fp64_by_hand(case, tmp_path):
    hold_against_fp64(case, tmp_path)
