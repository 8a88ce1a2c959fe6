"""A program whose threads do their worst while their stacks are read; each stack tells what it can be.

Its functions carry their caller's name: `tree_012` is called by `tree_01`, in a line that is known. So are
generators, coroutines, code that is compiled and let go, and threads that live for one deep call.
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from dftrace_ai import _native

Frame = tuple[str, str, int]

DEPTHS = {"tree": 6, "gen": 5, "coro": 4}
LINES_BEFORE_CALLS = 2
ROOTS = ("Thread._bootstrap", "<module>")
first_lines: dict[str, int] = {}
stop = threading.Event()


def source(kind: str, depth: int, width: int = 3) -> dict[str, Any]:
    """Functions that call each other, compiled; where each begins stands in `first_lines`."""
    lines: list[str] = []

    def make(path: str) -> None:
        below = [f"{kind}_{path}{i}" for i in range(width)] if len(path) < depth else []
        first_lines[f"{kind}_{path}"] = len(lines) + 1
        if kind == "tree":
            lines.extend([f"def tree_{path}():", "    pass", *(f"    {one}()" for one in below)])
        elif kind == "gen":
            forms = ("    for x in {}(): yield x", "    yield from {}()")
            calls = [forms[i % 2].format(one) for i, one in enumerate(below)]
            lines.extend([f"def gen_{path}():", "    yield 1", *calls])
        else:
            calls = [f"    await {one}()" for one in below]
            lines.extend([f"async def coro_{path}():", "    await asyncio.sleep(0)", *calls])
        for i in range(len(below)):
            make(path + str(i))

    make("0")
    space: dict[str, Any] = {"asyncio": asyncio}
    exec(compile("\n".join(lines), f"{kind}.src", "exec"), space)
    return space


def run_tree(space: dict[str, Any]) -> None:
    """Calls of small functions."""
    while not stop.is_set():
        space["tree_0"]()


def run_generators(space: dict[str, Any]) -> None:
    """Frames that lie in objects, and not among those of their thread."""
    while not stop.is_set():
        for _ in space["gen_0"]():
            pass


def run_coroutines(space: dict[str, Any]) -> None:
    """Five of them in turn."""

    async def main() -> None:
        while not stop.is_set():
            await asyncio.gather(*(space["coro_0"]() for _ in range(5)))

    asyncio.run(main())


def run_compiled() -> None:
    """Code that is let go: its addresses are used again at once."""
    number = 0
    while not stop.is_set():
        number += 1
        text = (
            "\n" * (number % 50)
            + f"def x_{number}():\n    s = 0\n    for k in range(60): s += k\n"
            + f"def y_{number}():\n    x_{number}()\n"
        )
        space: dict[str, Any] = {}
        exec(compile(text, f"f_{number}", "exec"), space)
        space[f"y_{number}"]()
        if number % 500 == 0:
            gc.collect()


def run_threads() -> None:
    """Threads that come and go, with stacks that take and give back memory."""

    def deep_(left: int) -> None:
        if left:
            deep_(left - 1)

    while not stop.is_set():
        thread = threading.Thread(target=deep_, args=(300,))
        thread.start()
        thread.join()


def wrong(stack: Sequence[Frame]) -> tuple[str, str]:
    """What kind of stack this is, and what of it cannot be; outermost frame first."""
    kind = "other"
    if stack[0][0] not in ROOTS:
        return kind, f"root {stack[0]}"
    for (name, file, line), below in zip(stack, [*stack[1:], None], strict=True):
        if made := re.match(r"(tree|gen|coro)_(\d+)$", name):
            kind = made[1]
            if complaint := wrong_call(made, file, line, below):
                return kind, f"{name} {file}:{line} -> {below}: {complaint}"
        if made := re.match(r"[xy]_(\d+)$", name):
            kind = "compiled"
            before = int(made[1]) % 50
            if file != f"f_{made[1]}" or not before < line <= before + 5:
                return kind, f"place {name} {file}:{line}"
            if below and below[0] != f"x_{made[1]}":
                return kind, f"{name} -> {below[0]}"
        if name.endswith("deep_"):
            kind = "threads"
    return kind, ""


def wrong_call(made: re.Match[str], file: str, line: int, below: Frame | None) -> str:
    kind, path = made.groups()
    first = first_lines[made[0]]
    if file != f"{kind}.src" or not first <= line < first + LINES_BEFORE_CALLS + 3:
        return "place"
    if below is None:
        return ""
    callee = re.match(r"(tree|gen|coro)_(\d+)$", below[0])
    if callee is None:
        return "callee" if kind == "tree" else ""
    if callee[1] != kind or callee[2][:-1] != path:
        return "caller"
    return "" if line == first + LINES_BEFORE_CALLS + int(callee[2][-1]) else "line"


def judged(reader: _native.StackReader, rounds: int) -> dict[str, Any]:
    """Read so often, and count what was seen of each kind, and what was wrong.

    On a busy machine threads that do nothing may be all that is seen: then again, sixty times at most.
    """
    samples = reader.sample(rounds)
    for _ in range(60):
        seen = {name.partition("_")[0] for name, *_ in reader.names()}
        if {"tree", "gen"} <= seen:
            break
        samples += reader.sample(rounds)
    names, nodes = reader.names(), reader.nodes()

    def stack(node: int) -> list[Frame]:
        found = []
        while node >= 0:
            node, code, line = nodes[node]
            found.append((*names[code][:2], line))
        return found[::-1]

    verdicts = {node: wrong(stack(node)) for node in {sample[2] for sample in samples}}
    kinds = Counter(verdicts[sample[2]][0] for sample in samples)
    return {
        "kinds": dict(kinds),
        "wrong": sorted({complaint for _, complaint in verdicts.values() if complaint})[:10],
        "counts": reader.counts(),
    }


def main(ways: Sequence[str], rounds: int) -> None:
    """Print of each way what it has seen."""
    sys.setswitchinterval(0.0005)
    spaces = {kind: source(kind, depth) for kind, depth in DEPTHS.items()}
    work: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
        (run_tree, (spaces["tree"],)),
        (run_generators, (spaces["gen"],)),
        (run_coroutines, (spaces["coro"],)),
        (run_compiled, ()),
        (run_threads, ()),
    ]
    threads = [threading.Thread(target=target, args=args) for target, args in work]
    for thread in threads:
        thread.start()
    try:
        print(json.dumps({way: judged(_native.StackReader(way), rounds) for way in ways}))
    finally:
        stop.set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(sys.argv[2:], int(float(sys.argv[1])))
