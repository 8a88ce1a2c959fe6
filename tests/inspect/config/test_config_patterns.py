"""Regular expressions of a config: what `re` finds, in a time that has bounds."""

from __future__ import annotations

import random
import re
import warnings

import pytest
from inspect_configs import LOG, one_section

from dftrace_ai.inspect.config import LayerInfo, bounded_search, load
from dftrace_ai.inspect.config.bounded_search import searcher

# On some of these names `re` would need longer than the universe has lasted.
HARMFUL = [
    r"(a+)+$x",
    r"(a|aa)+b",
    r"(a|a)*b",
    r"(.*a){20}b",
    r"(\w+\s?)*$x",
    r"((a*)*)*b",
    "(a?){40}a{40}b",
    "a?" * 40 + "a" * 40 + "c",
    ".*" * 12 + "=x",
    r"^(([a-z])+.)+[A-Z]([a-z])+$",
    r"(?i)(a|A|[aA])+$x",
    r"(a{1,20}){1,20}b",
    "a{1,9}" * 30 + "b",
    r"(?=(a+)+b)c",
    r"(?!(a|aa)+b)c",
    r"(?<=(?:a|a){30})b",
    "(?=(?=(?=(?=a*b)*)*)*)*c",
    "(){1000000000}b",
    "(?:(?:(?:){1000}){1000}){1000000}b",
    f"({'|'.join('a' * count for count in range(1, 30))})*b",
]
NAMES = ["a" * 40, "a" * 400, "aé" * 150, "a " * 100, "model.layers.11.self_attn.q_proj"]


@pytest.mark.parametrize("pattern", HARMFUL)
def test_what_might_take_for_ever_does_not(pattern: str) -> None:
    layers = {"layer_name_regex_pattern": pattern}
    selector = load(one_section(layers=layers, LogTensorStats=LOG)).selector(map(LayerInfo, NAMES))
    found = [name for name in NAMES if selector.section_of(LayerInfo(name))]
    assert found == []


@pytest.mark.parametrize(
    "pattern",
    [
        r"(.+)+\1c",
        r"(a+)(b+)\1\2(c+)+$x",
        "(a{0,100}){0,100}b",
        "a{100000}",
        r"((\b){1000}){1000}b",
        r"(\b|a){9999}b",
    ],
)
def test_what_has_no_bounds_is_refused_by_name(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"one\.layers\.layer_name_regex_pattern.*may take") as at:
        load(one_section(layers={"layer_name_regex_pattern": pattern}, LogTensorStats=LOG))
    assert repr(pattern) in str(at.value)


@pytest.mark.parametrize(
    "pattern",
    [
        r"model\.layers\.(\d+)\..*",
        r".*(qkv|proj).*",
        r".*(fc1|self_attention).*",
        r".*layers.*attn.*(q|k)_proj.*$",
        r"layers\.([0-9]|1[0-9])\.(self_attn|mlp)\.(q|k|v|o|up|down|gate)_proj$",
        r"^(?!.*mlp).*layers.*\d+.*q_proj",
        r"(\d+)\..*\.\1",
        r"(?<!self_)attn",
        r"layers\.(1|2)+\.",
        r"(?i)^MODEL\.(?:\w+\.)*Q_PROJ$",
    ],
)
def test_what_is_usual_is_found_as_ever(pattern: str) -> None:
    names = [
        f"model.layers.{number}.{block}.{part}"
        for number in range(30)
        for block in ("self_attn", "mlp", "cross_attn")
        for part in ("qkv", "q_proj", "up_proj", "fc1", str(number))
    ]
    found = searcher(pattern)
    assert [name for name in names if found(name)] == [
        name for name in names if re.search(pattern, name)
    ]


PIECES = [
    *("a", "b", "A", "é", "ß", "_", r"\d", r"\w", r"\s", r"\S", ".", "[ab]", "[^a]", r"[^\d]"),
    *("[a-c0-9]", r"\.", "\n", r"\b", r"\B", "^", "$", r"\A", r"\Z"),
]
REPEATS = ["*", "+", "?", "*?", "+?", "{2}", "{1,3}", "{,2}", "{2,}"]


def expression(choose: random.Random, depth: int) -> str:
    kind = choose.random()
    if depth <= 0 or kind < 0.35:
        return choose.choice(PIECES)

    def inner() -> str:
        return expression(choose, depth - 1)

    if kind < 0.55:
        return inner() + inner()
    if kind < 0.7:
        how = choose.choice(["", "?:", "?i:", "?s:", "?m:", "?a:", "?-i:"])
        return f"({how}{'|'.join(inner() for _ in range(choose.randint(1, 3)))})"
    if kind < 0.9:
        return f"({inner()}){choose.choice(REPEATS)}"
    if kind < 0.95:
        return f"({choose.choice(['?=', '?!'])}{inner()})"
    return f"({choose.choice(['?<=', '?<!'])}{choose.choice(PIECES[:16])})"


def test_any_expression_finds_what_re_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_search, "MOST_LETTERS", -1)  # so that none is left to `re`
    choose = random.Random(7)
    tried = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while tried < 2_000:
            pattern = choose.choice(["", "(?i)", "(?m)", "(?s)"]) + expression(choose, 4)
            try:
                expected = re.compile(pattern)
            except re.error:
                continue
            found = searcher(pattern)
            for _ in range(4):
                name = "".join(choose.choices("aabbAcé1_. \nßI", k=choose.randint(0, 8)))
                assert found(name) is (expected.search(name) is not None), (pattern, name)
            tried += 1
