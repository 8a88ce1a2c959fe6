"""Words in pictures."""

from __future__ import annotations

from dftrace_ai.page.svg import short_names

LAYERS = [f"model.blocks.{n}.attention.{name}" for n in range(12) for name in ("in", "out_proj")]
LAYERS.append("model.head")


def test_layers_that_are_called_alike_stay_apart_in_little_room() -> None:
    for letters in (40, 28, 20, 17):
        short = short_names(LAYERS, letters)
        assert len(set(short)) == len(LAYERS), letters
        assert max(map(len, short)) <= letters
    assert short_names(LAYERS, 40) == LAYERS
    assert short_names(LAYERS, 28)[1] == "…blocks.0.attention.out_proj"
    assert short_names(LAYERS, 17)[-2:] == ["…b.11.a.out_proj", "…head"]
