"""JSON that is written without Python's own module is what that module reads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dftrace_ai.run.settings import json_text

TEXTS = st.text(st.characters())  # halves of surrogates, too, as paths have them
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
@example("".join(map(chr, range(256))))
@example("C:\\")
@example(["a\\", "\\\\"])
@example("\U0001f600\ud83d\ude00\udcff")
def test_what_is_written_is_read_back(value: Any) -> None:
    for ascii_only in (False, True):
        text = json_text(value, ascii_only=ascii_only)
        # Halves that meet are one letter to whoever reads escapes.
        again = json.loads(json.dumps(value)) if ascii_only else value
        assert json.loads(text) == again
        assert "\n" not in text
        assert not ascii_only or text.isascii()


@given(st.text())
def test_it_is_as_pythons_own_writes_it(text: str) -> None:
    if not text.endswith("\\"):
        assert json_text([text]) == json.dumps([text], ensure_ascii=False)


def test_a_text_does_not_end_with_what_perfetto_stumbles_over() -> None:
    assert json_text("C:\\") == '"C:\\u005c"'
    assert json_text({"a\\": ["b\\\\"]}) == '{"a\\u005c":["b\\\\\\u005c"]}'


def test_what_has_no_form_is_refused() -> None:
    with pytest.raises(TypeError, match="bytes"):
        json_text({"path": b"x"})
