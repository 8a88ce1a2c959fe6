"""Files of which not much can be said, and none may be the end of a program that reads it."""

from __future__ import annotations

from pathlib import Path

from analysis.trace_lines import small_trace
from analysis.why.made_runs import Lines


def loop(lines: Lines, steps: int, *, wait_ms: int = 1, ms: int = 10) -> None:
    """A loop without anything else."""
    for step in range(steps):
        at = step * (wait_ms + ms) * 1e6
        lines.say("dataloader", "fetch.iter", at, wait_ms * 1e6, 5, count=step + 1)
        lines.say("dataloader", "fetch.block", at + wait_ms * 1e6, ms * 1e6, 5, count=step + 1)


def bad_inputs(folder: Path) -> list[Path]:
    """Files of which not much can be said, and none may be the end of the program."""
    whole = small_trace().text
    made: dict[str, bytes] = {
        "cut": whole[: len(whole) * 2 // 3],
        "empty": b"",
        "opening": b"[\n",
        "metadata": b"\n".join(whole.splitlines()[:4]) + b"\n",
        "small": whole,
    }
    names = Lines(1)
    for step in range(50):
        names.say("compute", "forward", step * 1e6, 1e5)
    made["no steps"] = names.text
    for name, steps in (("one step", 1), ("two steps", 2), ("three steps", 3)):
        lines = Lines(1)
        loop(lines, steps)
        made[name] = lines.text
    jumping = Lines(1)
    loop(jumping, 30)
    jumping.span("fetch.iter", "dataloader", 5, 10**15, count=1)
    jumping.add(
        '{"id":1,"name":"forward","cat":"compute","pid":1,"tid":1,"ts":99999999999999999.0,'
        '"dur":99999999999999999.0,"ph":"X"}'
    )
    jumping.add(
        '{"id":1,"name":"step","cat":"compute","pid":1,"tid":1,"ts":-5.0,"dur":-7.0,"ph":"X"}'
    )
    made["jumping clocks"] = jumping.text
    together = Lines(1)
    for number in range(60):  # all at the same moment, some without any length
        together.span("step", "pipeline", 1000, number % 2, count="x", step=[1], epoch={})
        together.span("step", "compute", 1000 + number, 0, p_idx="a")
        together.span("item", "data", 1000, 0)
    made["without length"] = together.text
    strange = Lines(1)
    loop(strange, 40)
    strange.add('{"id":1,"name":"memory","cat":"counter","pid":1,"tid":1,"ts":1,"ph":"C","args":7}')
    for at in range(40):
        strange.sample("memory \x1b[2J", at * 1e7, a=1e308, b=-1e308, c=at * 1e300)
        strange.sample("cpu %", at * 1e7, system=1e300, process=-1e300)
    made["strange counters"] = strange.text
    for name, text in made.items():
        (folder / f"{name}.pfw").write_bytes(text)
    return sorted(folder.glob("*.pfw"))
