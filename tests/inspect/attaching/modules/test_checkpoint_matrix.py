"""Checkpoints and compiled code change nothing of what FP8, features and statistics come to."""

from __future__ import annotations

import pytest
from checkpoint_matrix import CORNERS, EVERY, Case, hold_against_fp64


def marked(case: Case) -> object:
    return pytest.param(*case, id=str(case), marks=[pytest.mark.always] if case in CORNERS else [])


def through(*ways: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        Case._fields, [marked(case) for case in EVERY if case.way in ways]
    )


@pytest.mark.sampled(0.06)
@through("eager")
def test_a_training_comes_to_the_same_as_in_fp64_by_hand(
    recipe, feature, checkpoint, way, tmp_path
):
    hold_against_fp64(Case(recipe, feature, checkpoint, way), tmp_path)


@pytest.mark.sampled(0.02)
@through("compiled", "compiled inside")
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_a_compiled_training_comes_to_the_same_as_in_fp64_by_hand(
    recipe, feature, checkpoint, way, tmp_path
):
    hold_against_fp64(Case(recipe, feature, checkpoint, way), tmp_path)
