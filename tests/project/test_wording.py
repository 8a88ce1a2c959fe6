"""What messages make of what somebody else chose, and what is told once."""

from __future__ import annotations

import threading

import pytest

from dftrace_ai.wording import ToldOnce, described, escaped, in_short, quoted, shortened


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("grüße, 模型", "grüße, 模型"),
        ("a\x1b[2Jb\nc", "a\\x1b[2Jb\\nc"),
        ("a\tb", "a\\tb"),
        ("a\u202eb", "a\\u202eb"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("trace-\udcff.pfw", "trace-\\xff.pfw"),
    ],
)
def test_what_acts_on_a_terminal_is_escaped(text: str, seen: str) -> None:
    assert escaped(text) == seen
    assert quoted(text) == (text if text.isprintable() else repr(text))


def test_letters_that_are_wanted_stay() -> None:
    assert escaped("a\tb\n", kept="\t") == "a\tb\\n"


def test_what_is_long_ends_in_an_ellipsis() -> None:
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefg", 6) == "abcde…"
    assert in_short("x" * 1000).endswith("x…")
    assert len(in_short("x" * 1000)) == 120
    assert in_short(10**9000) == "this int"


def test_an_error_that_cannot_say_its_message_is_described() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert described(OSError("disk full")) == "OSError: disk full"
    assert described(RuntimeError("too new\n\n  take 3.9\r\n")) == "RuntimeError: too new take 3.9"
    assert described(RuntimeError("\x1b[31mno")) == r"RuntimeError: \x1b[31mno"
    assert described(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert described(MuteError()) == "MuteError: (its message cannot be told: RuntimeError)"


def test_one_of_many_threads_is_the_first() -> None:
    told = ToldOnce()
    assert told.first("disk", 1)
    assert told.first("disk", 2)
    assert not told.first("disk", 1)
    told.forget()
    start = threading.Barrier(8)
    firsts: list[int] = []

    def tell() -> None:
        start.wait()
        firsts.extend(key for key in range(500) if told.first(key))

    threads = [threading.Thread(target=tell) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(firsts) == list(range(500))
