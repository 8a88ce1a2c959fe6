"""The line that carries a finding, named exactly where it is planted; silence where none is."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest
from analysis.lines.made_programs import MODULE, Program, Thread, write_job
from analysis.lines.made_stacks import Called, MadeStacks
from safety.commands import invoke

from dftrace_ai.analysis.why import Verdict, verdict_lines, why
from dftrace_ai.analysis.why.words import NO_SAMPLES, phase_lines

SCHEMAS = Path(__file__).parents[3] / "schemas"
SCHEMA = json.loads((SCHEMAS / "why.schema.json").read_text("utf-8"))
SPIN: Called = ("spin", "train.py", 9)
TRAIN: Called = ("Trainer.train", "transformers/trainer.py", 0, True)
WRAPPER: Called = ("learns", "dftrace_ai/integrations/steps.py", 0, 3)
NORM: Called = ("Tensor.norm", "torch/_tensor.py", 0, True)
SPAWN: Called = ("spawn_main", "multiprocessing/spawn.py", 0, True)


def at(name: str, line: int, file: str = "train.py") -> Called:
    return name, file, line


class Case(NamedTuple):
    """What is planted, the finding of it, and the sentence on its line without shares and counts."""

    program: Program
    kind: str
    told: str
    least: float = 0.9


DECODE = at("decode", 88, "pkg/augment.py")
GETITEM_OF_DATA = at("Data.__getitem__", 41, "data.py")
GETITEM = "called by Data.__getitem__ (data.py:41)"
MAIN = "called by main (train.py:57)"
UNNAMED = "% of what is not annotated lies in"
MORE = "% of what these steps take more lies in"
CASES = {
    "an item of a worker": Case(
        Program(item=[(4, 1, [DECODE]), (0.1, 1, [])], workers=1),
        "input-bound",
        f"% of item lies in decode (augment.py:88), {GETITEM}",
    ),
    "an item of the loop": Case(
        Program(item=[(3, 1, [DECODE]), (0.1, 1, [])]),
        "input-bound",
        f"% of item lies in decode (augment.py:88), {GETITEM}",
    ),
    "a worker that waits": Case(
        Program(item=[(5, 0.02, [at("read_file", 30, "data.py")])], workers=1),
        "input-bound",
        f"% of item lies in read_file (data.py:30), and waits there (2 % CPU), {GETITEM}",
    ),
    "a collate function": Case(
        Program(item=[(0.2, 1, [])], collate=[(40, 1, [at("pad_all", 12, "data.py")])], workers=1),
        "input-bound",
        "% of collate lies in pad_all (data.py:12), called by train.py:120",
    ),
    "a callback": Case(
        Program(loop=[(15, 1, [at("on_step_end", 70)])]),
        "not-annotated",
        f"{UNNAMED} on_step_end (train.py:70), {MAIN}",
    ),
    "a helper of two": Case(
        Program(loop=[(9, 1, [at("a", 71), SPIN]), (6, 1, [at("b", 72), SPIN])]),
        "not-annotated",
        f"{UNNAMED} spin (train.py:9), called % by a (train.py:71) and % by b (train.py:72)",
    ),
    "a library": Case(
        Program(loop=[(15, 1, [at("clip", 33), NORM])]),
        "not-annotated",
        f"{UNNAMED} clip (train.py:33), there in Tensor.norm, {MAIN}",
    ),
    "a library, which the recorder calls": Case(
        Program(loop=[(15, 1, [at("clip", 33), WRAPPER, NORM])]),
        "not-annotated",
        f"{UNNAMED} clip (train.py:33), there in Tensor.norm, {MAIN}",
    ),
    "a line of the loop": Case(
        Program(loop=[(15, 1, [])]), "not-annotated", f"{UNNAMED} main (train.py:57)"
    ),
    "a line outside of functions": Case(
        Program(top=[MODULE], loop=[(15, 1, [])]), "not-annotated", f"{UNNAMED} train.py:120"
    ),
    "a recursion": Case(
        Program(loop=[(15, 1, [at("parse", 5), at("parse", 5), at("parse", 6), SPIN])]),
        "not-annotated",
        f"{UNNAMED} spin (train.py:9), called by parse (train.py:6)",
    ),
    "logging": Case(
        Program(log=[(45, 0.05, [at("log_metrics", 44)])]),
        "other-heavy",
        "% of other work lies in log_metrics (train.py:44), and waits there (5 % CPU), " + MAIN,
    ),
    "clipping": Case(
        Program(optimizer=[(60, 1, [at("clip", 33)])]),
        "optimizer-heavy",
        f"% of the optimizer lies in clip (train.py:33), {MAIN}",
    ),
    "single slow steps": Case(
        Program(at=dict.fromkeys((90, 120), (700, 1, [at("dump_images", 90)]))),
        "slow-step",
        f"{MORE} dump_images (train.py:90), {MAIN}",
    ),
    "two steps, each in a line": Case(
        Program(
            at={90: (700, 1, [at("dump_images", 90)]), 120: (680, 1, [at("evaluate", 95)])}
        ),
        "slow-step",
        f"% of what step 90 takes more lies in dump_images (train.py:90), {MAIN}",
    ),
    "a rhythm": Case(
        Program(every=10, every_ms=(60, [at("save_state", 77)])),
        "periodic",
        f"{MORE} save_state (train.py:77), {MAIN}",
    ),
    "a rhythm in what all steps call, too": Case(
        Program(
            step_ms=0.2,
            loop=[(20, 1, [at("work", 70), SPIN])],
            every=10,
            every_ms=(60, [at("flush", 77), SPIN]),
        ),
        "periodic",
        f"{MORE} flush (train.py:77), {MAIN}",
    ),
    "slower since a step": Case(
        Program(since=80, loop=[(15, 1, [at("grows", 66)])]),
        "slower-since",
        f"% of what they take longer lies in grows (train.py:66), {MAIN}",
        0.8,
    ),
}  # fmt: skip


def one_line(verdict: Verdict, kind: str) -> Any:
    finding = next(one for one in verdict.findings if one.kind == kind)
    (line,) = finding.lines
    return line


@pytest.mark.parametrize("name", CASES)
def test_the_planted_line_is_named(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    verdict = why([case.program.write(tmp_path)])
    line = one_line(verdict, case.kind)
    carrier = line.carrier
    assert case.least <= carrier.share <= 1
    assert 0.5 <= carrier.low <= carrier.share <= carrier.high <= 1
    # Shares are in figures, and in the words without these.
    share, count = f"{100 * carrier.share:,.0f} ", f"; {carrier.samples} samples"
    assert line.text.startswith(share)
    assert line.text.endswith(count)
    words = re.sub(r"\d+ % by", "% by", line.text[len(share) : -len(count)])
    assert words == case.told
    rows = [text for text in verdict_lines(verdict) if text.startswith("  because ")]
    assert sum(line.text in row for row in rows) == 1


SILENT = {
    "two functions by half": (
        Program(loop=[(8, 1, [at("a", 71)]), (8, 1, [at("b", 72)])]),
        "not-annotated",
        "no function of the program holds half of it",
    ),
    "lines of the loop": (
        Program(top=[MODULE], loop=[(5, 1, [at(f"f{n}", n)]) for n in range(4)]),
        "not-annotated",
        "no function of the program holds half of it",
    ),
    "what has spawned the process": (
        Program(top=[at(MODULE[0], 1, "<string>"), SPAWN], loop=[(15, 1, [])]),
        "not-annotated",
        "no function of the program holds half of it",
    ),
    "a library that has the loop": (
        Program(top=[MODULE, at("main", 57), TRAIN], loop=[(15, 1, [NORM])]),
        "not-annotated",
        "all of the loop lies in one line of the program, which calls a library",
    ),
    "few samples": (
        Program(loop=[(15, 1, [at("on_step_end", 70)])], hz=4),
        "not-annotated",
        "of at least 15 samples",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SILENT)
def test_nothing_is_named_where_nothing_is_sure(name: str, tmp_path: Path) -> None:
    program, kind, silence = SILENT[name]
    verdict = why([program.write(tmp_path)])
    line = one_line(verdict, kind)
    assert (line.text, line.carrier) == ("", None)
    assert silence in line.silence
    assert "lies in" not in "\n".join(verdict_lines(verdict))
    assert f"  lines     {line.phase}: {line.silence}" in phase_lines(verdict)[0]


def test_a_line_that_has_all_of_the_loop_is_not_what_slow_steps_take_more(tmp_path: Path) -> None:
    plant = dict.fromkeys((90, 120), (700, 1, [NORM]))
    program = Program(top=[MODULE, at("main", 57), TRAIN], at=plant)
    line = one_line(why([program.write(tmp_path)]), "slow-step")
    assert line.text == ""
    assert "all of the loop lies in one line" in line.silence


class Waiting(Program):
    """A training that waits for a loader whose work nobody sees."""

    def load(self, main: Thread, staff: list[Thread], number: int) -> None:
        poll = ("poll", "multiprocessing/connection.py", 0, True)
        with main.span("dataloader", "fetch.iter", step=number):
            main.do(60 if number >= 80 else 30, *self.top, poll, cpu=0)


def test_the_line_of_the_loop_is_not_accused_of_a_wait_for_data(tmp_path: Path) -> None:
    verdict = why([Waiting().write(tmp_path)])
    assert verdict.verdict == "input-bound"
    lines = [line for one in verdict.findings for line in one.lines]
    assert {line.text for line in lines} == {""}
    assert any("the loop waits for data there" in line.silence for line in lines)


class Asking(Program):
    """A training whose workers have nothing to do while it waits, in a function of its own."""

    def load(self, main: Thread, staff: list[Thread], number: int) -> None:
        poll = ("poll", "multiprocessing/connection.py", 0, True)
        for thread in staff:
            thread.do(30, MODULE, poll, cpu=0)
            self.batch_of(thread, (MODULE,))
        with main.span("dataloader", "fetch.iter", step=number):
            main.do(40, *self.top, at("endless", 68), poll, cpu=0)


def test_who_asks_workers_is_not_accused_of_the_wait(tmp_path: Path) -> None:
    verdict = why([Asking(item=[(0.001, 1, [])], workers=2).write(tmp_path)])
    (line,) = next(one.lines for one in verdict.findings if one.kind == "input-bound")
    assert line.phase == "the wait for data"
    assert "the loop waits for data there" in line.silence


class RareItems(Program):
    """Some batches have an item that takes long."""

    def load(self, main: Thread, staff: list[Thread], number: int) -> None:
        self.number = number
        super().load(main, staff, number)

    def batch_of(self, thread: Thread, top: Sequence[Called]) -> None:
        super().batch_of(thread, top)
        if self.number in {7, 11, 26, 31, 49, 58, 77, 81, 102, 109, 133, 140}:
            with thread.span("data", "item"):
                thread.do(300, *top, GETITEM_OF_DATA, DECODE)


@pytest.mark.parametrize("cpu", [1.0, 0.3])
def test_items_that_take_long_since_the_machine_is_busy_accuse_nobody(
    cpu: float, tmp_path: Path
) -> None:
    verdict = why([RareItems(item=[(0.1, 1, [])], cpu=cpu).write(tmp_path)])
    line = one_line(verdict, "input-bound")
    assert line.phase == "these items"
    assert ("decode (augment.py:88)" in line.text) == (cpu == 1)
    assert line.silence == ("" if cpu == 1 else "the machine did not let it run meanwhile")


class Stalled(Program):
    """In two steps the machine has no processor for it."""

    def compute(self, main: Thread, number: int) -> None:
        super().compute(main, number)
        if number in {90, 120} and main.stacks:
            main.stacks.ready_us = getattr(main.stacks, "ready_us", 0) + 690_000.0
            main.do(700, *self.top, at("log", 61), cpu=0.01)


def test_a_stall_of_the_machine_is_no_line(tmp_path: Path) -> None:
    line = one_line(why([Stalled().write(tmp_path)]), "slow-step")
    assert (line.text, line.silence) == ("", "the machine did not let it run meanwhile")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_clean_program_is_accused_of_nothing(workers: int, tmp_path: Path) -> None:
    verdict = why([Program(item=[(0.1, 1, [])], workers=workers).write(tmp_path)])
    assert not any(one.lines for one in verdict.findings)
    assert "lies in" not in "\n".join(verdict_lines(verdict))
    # Of all phases it is told where somebody asks.
    assert any(
        text.startswith("  lines     100 % of backward lies in") for text in phase_lines(verdict)
    )


def test_a_process_that_was_not_let_run_is_told(tmp_path: Path) -> None:
    plant = dict.fromkeys((90, 120), (700, 1, [at("dump_images", 90)]))
    line = one_line(why([Program(at=plant, not_run=True).write(tmp_path)]), "slow-step")
    assert re.fullmatch(
        r"the process itself was not let run: \d of 1[34]\d samples came", line.text
    )


def test_a_line_of_all_steps_does_not_stand_for_one(tmp_path: Path) -> None:
    programs = [Program(steps=80, loop=[(3, 1, [at("mix", 31)])]) for _ in range(2)]
    programs[1].loop = [*programs[1].loop, (20, 1, [at("encode", 42, "data.py")])]
    programs[1].at = {60: (8000, 1, [at("rest", 50)])}
    found = why([write_job(tmp_path, programs)]).findings
    lines = {one.cause: [line.text for line in one.lines] for one in found}
    assert "encode (data.py:42)" in lines["worker"][0]
    (of_one,) = lines["once"]
    assert re.fullmatch(
        r"(9\d|100) % of what these steps take more lies in rest \(.*\), .*", of_one
    )
    (rule,) = [one for one in found if one.cause == "worker"]
    assert rule.what.startswith("But for step 60, rank 1 was the slowest in ")


@pytest.mark.parametrize("helper", [[], [SPIN]], ids=["by itself", "in a helper of all"])
def test_what_a_late_rank_does_longer_is_named(helper: list[Called], tmp_path: Path) -> None:
    programs = [Program(steps=80, loop=[(3, 1, [at("mix", 31), *helper])]) for _ in range(4)]
    programs[1].loop = [*programs[1].loop, (20, 1, [at("encode", 42, "data.py"), *helper])]
    verdict = why([write_job(tmp_path, programs)])
    assert verdict.verdict == "late-rank"
    line = one_line(verdict, "late-rank")
    told = r"on rank 1 only: encode \(data\.py:42\) (\d\d\.\d|\d\d) ms a step, 0 on the others"
    found = re.fullmatch(told, line.text)
    assert found, line.text
    assert float(found[1]) == pytest.approx(20, rel=0.2)
    assert verdict.findings[0].next == "Why rank 1 alone is in encode (data.py:42)."
    # Of steps whose samples were torn off nobody knows what they are in.
    for file in [path for path in tmp_path.rglob("*.pfw*") if '"rank":1' in path.read_text()]:
        kept = file.read_text().splitlines(keepends=True)
        chunks = [at for at, line in enumerate(kept) if '"ph":"P"' in line]
        lost = {*chunks[len(chunks) // 2 :]}
        file.write_text("".join(line for at, line in enumerate(kept) if at not in lost) + '{"na')
    verdict = why([tmp_path])
    # Who reads steps and who reads samples come upon the same end.
    assert sum(": torn: " in note for note in verdict.notes) == 1
    found = re.fullmatch(told, one_line(verdict, "late-rank").text)
    assert found
    assert float(found[1]) == pytest.approx(20, rel=0.2)
    # One that does the same a little longer says nothing of a line.
    for program in programs:
        program.loop = [(20, 1, [at("encode", 42, "data.py")])]
    clean = why([write_job(tmp_path / "clean", programs)])
    assert not any(one.kind == "late-rank" and one.lines for one in clean.findings)


def test_what_the_workers_of_a_late_rank_do_longer_is_named(tmp_path: Path) -> None:
    programs = [
        Program(steps=80, workers=1, item=[(0.5, 1, [at("crop", 31, "data.py")])]) for _ in range(3)
    ]
    programs[1].item = [*programs[1].item, (5, 1, [at("encode", 42, "data.py")])]
    verdict = why([write_job(tmp_path, programs)])
    assert verdict.verdict == "late-rank"
    line = one_line(verdict, "late-rank")
    told = r"on rank 1 only: encode \(data\.py:42\) (\d\d\.\d|\d\d) ms a step, 0 on the others"
    found = re.fullmatch(told, line.text)
    assert found, line.text
    assert float(found[1]) == pytest.approx(40, rel=0.2)


def test_the_command_tells_all_phases_in_words_and_json(tmp_path: Path) -> None:
    CASES["a callback"].program.write(tmp_path)
    done = invoke("why", tmp_path, "--lines")
    rows = [line for line in done.out.splitlines() if line.startswith("  lines ")]
    assert len(rows) == 4
    assert rows[0].startswith("  lines     100 % of what is not annotated lies in on_step_end")
    told = json.loads(invoke("why", tmp_path, "--json").out)
    jsonschema.validate(told, SCHEMA)
    assert told["findings"][0]["lines"][0]["carrier"]["function"] == "on_step_end"
    assert [line["phase"] for line in told["lines"]][:2] == ["what is not annotated", "backward"]


def test_without_samples_nothing_is_told_but_how_to_have_them(tmp_path: Path) -> None:
    Program(loop=[(15, 1, [at("on_step_end", 70)])], hz=0).write(tmp_path)
    verdict = why([tmp_path])
    assert (verdict.lines, verdict.findings[0].lines) == ((), ())
    assert NO_SAMPLES in " ".join(invoke("why", tmp_path, "--lines").out.split())


def test_of_too_few_steps_it_is_said_that_no_line_is_told(tmp_path: Path) -> None:
    Program(loop=[(15, 1, [at("on_step_end", 70)])], steps=2).write(tmp_path)
    done = " ".join(invoke("why", tmp_path, "--lines").out.split())
    assert done.endswith("no lines are told: 1 steady step, at least 3 are needed")
    assert "hold no samples" not in done


def test_samples_of_which_none_can_be_read_are_told(tmp_path: Path) -> None:
    line = MadeStacks.line
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MadeStacks, "line", lambda *of: line(*of[:3], {**of[3], "data": 5}))
        Program(loop=[(15, 1, [at("on_step_end", 70)])], steps=20).write(tmp_path)
    done = " ".join(invoke("why", tmp_path, "--lines").out.split())
    assert done.endswith("lines of samples that cannot be read")
    assert "hold no samples" not in done
    done = " ".join(invoke("summary", tmp_path, "--by", "line").out.split())
    assert "none of the samples of Python's stacks that these traces hold can be read" in done
    assert "hold no samples" not in done


def test_a_comparison_names_the_line_that_grew(tmp_path: Path) -> None:
    programs = {
        "clean": Program(steps=80),
        "grown": Program(steps=80, loop=[(15, 1, [at("on_step_end", 70), SPIN])]),
        "half": Program(steps=80, loop=[(8, 1, [at("a", 71)]), (8, 1, [at("b", 72)])]),
        "unsampled": Program(steps=80, loop=[(15, 1, [at("on_step_end", 70)])], hz=0),
    }
    for name, program in programs.items():
        program.write(tmp_path / name)
    told = json.loads(invoke("diff", tmp_path / "clean", tmp_path / "grown", "--json").out)
    jsonschema.validate(told, json.loads((SCHEMAS / "diff.schema.json").read_text("utf-8")))
    (line,) = told["lines"]
    assert (line["function"], line["file"], line["line"]) == SPIN
    assert line["before_ns"] == 0
    assert line["after_ns"] == pytest.approx(15e6, rel=0.15)
    assert 7.5e6 < line["low_ns"] < line["after_ns"]
    there, back = (
        invoke("diff", *(tmp_path / one for one in pair)).out.splitlines()[1]
        for pair in (("clean", "grown"), ("grown", "clean"))
    )
    where = r"most of it lies in spin \(train.py:9\): "
    assert re.fullmatch(where + r"none a step in A, 1\d(\.\d)? ms in B", there)
    assert re.fullmatch(where + r"1\d(\.\d)? ms a step in A, none in B", back)
    for other in ("half", "unsampled", "clean"):
        silent = json.loads(invoke("diff", tmp_path / "clean", tmp_path / other, "--json").out)
        assert silent["lines"] == []


@pytest.mark.parametrize("workers", [0, 1])
def test_work_that_a_busy_machine_seldom_runs_is_not_said_to_wait(
    workers: int, tmp_path: Path
) -> None:
    decode = Program(item=[(5, 1, [DECODE])], workers=workers, cpu=0.07)
    told = {line.phase: line.text for line in why([decode.write(tmp_path / "works")]).lines}
    assert "lies in decode (augment.py:88), called by" in told["item"]
    # What waits for something else hardly waits for a processor.
    reads = Program(
        item=[(40, 0.02, [at("read_file", 30, "data.py")])], steps=40, workers=workers, cpu=0.5
    )
    told = {line.phase: line.text for line in why([reads.write(tmp_path / "waits")]).lines}
    assert "lies in read_file (data.py:30), and waits there (1 % CPU)" in told["item"]


def test_work_between_waits_is_not_said_to_wait(tmp_path: Path) -> None:
    # What a sample says of processor time holds the waiting before it, too.
    worker_waits = [(18, 0, [at("read_file", 30, "data.py")])]
    Program(
        steps=100, hz=20, item=worker_waits, step_ms=1, loop=[(15, 1, [at("on_step_end", 70)])]
    ).write(tmp_path)
    told = {line.phase: line.text for line in why([tmp_path]).lines}
    assert "lies in on_step_end (train.py:70), called by main" in told["what is not annotated"]
    assert "lies in read_file (data.py:30), and waits there (" in told["item"]


def test_of_ranks_that_are_late_alike_each_is_told_its_own_function(tmp_path: Path) -> None:
    """Neither is in a span, so that one finding has both."""
    programs = [Program(steps=80, loop=[(3, 1, [at("mix", 31)])]) for _ in range(5)]
    programs[1].loop = [*programs[1].loop, (20, 1, [at("encode", 42, "data.py")])]
    programs[3].loop = [*programs[3].loop, (20, 1, [at("log", 7, "store.py")])]
    first = why([write_job(tmp_path, programs)]).findings[0]
    assert (first.kind, first.ranks) == ("late-rank", (1, 3))
    assert [line.text.partition(") ")[0] for line in first.lines] == [
        "on rank 1 only: encode (data.py:42",
        "on rank 3 only: log (store.py:7",
    ]
    assert first.next == (
        "Why rank 1 alone is in encode (data.py:42). Why rank 3 alone is in log (store.py:7)."
    )


def test_late_ranks_that_share_a_function_are_told_together(tmp_path: Path) -> None:
    programs = [Program(steps=80, loop=[(3, 1, [at("mix", 31)])]) for _ in range(5)]
    for late in (1, 2):
        programs[late].loop = [*programs[late].loop, (20, 1, [at("encode", 42, "data.py")])]
    first = why([write_job(tmp_path, programs)]).findings[0]
    assert (first.kind, first.ranks) == ("late-rank", (1, 2))
    (line,) = first.lines
    assert line.text.startswith("on ranks 1, 2 only: encode (data.py:42) ")
    assert first.next == "Why ranks 1, 2 alone are in encode (data.py:42)."


def test_the_second_of_two_late_ranks_is_told_why_and_what_to_do(tmp_path: Path) -> None:
    """Though it is unsure in which span it is so: the line says in what."""
    programs = [Program(steps=80, loop=[(3, 1, [at("mix", 31)])]) for _ in range(6)]
    programs[1].loop = [*programs[1].loop, (60, 1, [at("encode", 42, "data.py")])]
    programs[3].loop = [*programs[3].loop, (20, 1, [at("log", 7, "store.py")])]
    verdict = why([write_job(tmp_path, programs)])
    assert [one.ranks for one in verdict.findings[:2]] == [(1,), (3,)]
    text = "\n".join(verdict_lines(verdict))
    behind = text.partition("  also")[2]
    assert "because   on rank 3 only: log (store.py:7)" in behind
    assert "do next   Why rank 3 alone is in log (store.py:7)." in behind
