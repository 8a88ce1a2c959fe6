"""Random trainings against the rule of the guide: which updates share a step, and what says so."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from threading import Thread

import pytest
import torch
from conftest import Traced
from perfetto.trace_file import Event, Trace
from sampling import times
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dftrace_ai import ai
from dftrace_ai.integrations.auto import Auto


def one_ahead(loader: DataLoader) -> Iterator[torch.Tensor]:
    """Each batch but the first is fetched before the one in front of it is used."""
    batches = iter(loader)
    (current,) = next(batches)
    for (following,) in batches:
        yield current
        current = following
    yield current


class Rule:
    """Which updates are a step, as docs/guide/auto.md has it, told of what a training does."""

    def __init__(self) -> None:
        self.steps: list[dict[str, int]] = []
        self.on: dict[str, int] = {}
        self.is_fed: Callable[[], bool] = bool
        self.together = False

    def ends(self) -> None:
        """A fetch, the end of a pass, an evaluation or a checkpoint."""
        if self.on:
            self.steps.append(self.on)
        self.on = {}

    def update(self, optimizer: str, microbatches: int = 1) -> None:
        if optimizer in self.on:
            self.together &= len(self.on) > 1
            self.ends()
        elif self.on and not (self.together or self.is_fed()):
            self.ends()
        self.together |= bool(self.on)
        self.on[optimizer] = microbatches


class Program:
    """A training of one or two networks by turns, put together at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rule = Rule()
        self.losses: list[float] = []
        torch.manual_seed(seed)
        names = "AB"[: self.random.choice([1, 1, 2])]
        self.nets = {name: nn.Linear(2, 1) for name in names}
        self.optimizers = {
            name: torch.optim.SGD(net.parameters(), 0.01) for name, net in self.nets.items()
        }
        self.clears = self.random.choice(["first", "behind", "by the module"])
        self.backwards = 0

    def run(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            turns = [self.random.choice([*self.nets]) for _ in range(self.random.randint(1, 4))]
            accumulated = self.random.choice([1, 1, 2])
            for x in self.batches():
                for name in turns:
                    self.update(name, x, accumulated)
            self.between()
        self.rule.ends()

    def update(self, name: str, x: torch.Tensor, accumulated: int) -> None:
        self.rule.update(name, accumulated)
        net, optimizer = self.nets[name], self.optimizers[name]
        if self.clears == "first":
            optimizer.zero_grad()
        elif self.clears == "by the module":
            net.zero_grad()
        for _ in range(accumulated):
            loss = net(x).square().mean()
            loss.backward()
            self.backwards += 1
            self.losses.append(loss.item())
        optimizer.step()
        if self.clears == "behind":
            optimizer.zero_grad()

    def between(self) -> None:
        if self.random.random() < 0.3:
            with torch.no_grad():
                next(iter(self.nets.values()))(torch.ones(1, 2))
            self.rule.ends()

    def batches(self) -> Iterator[torch.Tensor]:
        number = self.random.randint(1, 4)
        data = torch.arange(4.0 * number).reshape(2 * number, 2)
        way = self.random.choice([self.loose, self.loop, self.broken, self.listed, self.ahead])
        way = self.random.choice([way, self.cycled, self.one])
        yield from way(DataLoader(data, batch_size=2), number)

    def loose(self, _: object, number: int) -> Iterator[torch.Tensor]:
        self.rule.is_fed = bool
        yield from torch.ones(number, 1, 2)

    def _live(self, loader: DataLoader) -> Iterator[torch.Tensor]:
        for x in loader:
            self.rule.ends()
            self.rule.is_fed = lambda: True
            yield x

    def _over(self) -> None:
        self.rule.ends()
        self.rule.is_fed = bool

    def loop(self, loader: DataLoader, _: int) -> Iterator[torch.Tensor]:
        yield from self._live(loader)
        self._over()

    def broken(self, loader: DataLoader, number: int) -> Iterator[torch.Tensor]:
        yield from islice(self._live(loader), max(1, number - 1))
        self.rule.is_fed = bool  # its iterator is gone

    def one(self, loader: DataLoader, _: int) -> Iterator[torch.Tensor]:
        x = next(iter(loader))
        self._over()
        yield from [x] * 5

    def cycled(self, loader: DataLoader, number: int) -> Iterator[torch.Tensor]:
        batches = cycle(self._live(loader))
        for i in range(2 * number + 1):
            if i == number:
                self._over()
            yield next(batches)

    def _until_used(self, number: int) -> None:
        least = self.backwards + number
        self.rule.is_fed = lambda: self.backwards < least

    def listed(self, loader: DataLoader, number: int) -> Iterator[torch.Tensor]:
        batches = list(loader)
        self._over()
        self._until_used(number)
        for _ in range(2):
            yield from batches

    def ahead(self, loader: DataLoader, number: int) -> Iterator[torch.Tensor]:
        before = self.backwards
        for i, x in enumerate(one_ahead(([x] for x in loader)), 1):
            self.rule.ends()
            self.rule.is_fed = lambda: True
            if i == number:  # nothing more was fetched in front of it
                is_used = self.backwards - before >= number
                self.rule.is_fed = bool if is_used else self.rule.is_fed
                if not is_used:
                    self._until_used(number - (self.backwards - before))
            yield x


def steps_of(trace: Trace) -> list[Event]:
    """The steps, which follow each other."""
    steps = [e for e in trace.spans if (e.cat, e.name) == ("pipeline", "step")]
    assert [e.args["step"] for e in steps] == list(range(len(steps)))
    assert all(one.end_ns <= other.ts_ns for one, other in zip(steps, steps[1:]))
    return steps


def numbers(event: Event) -> tuple[object, object]:
    return event.args.get("epoch"), event.args.get("step")


def work_in(steps: list[Event], trace: Trace) -> list[list[Event]]:
    """What each step is made of: all of it lies in one of them."""
    found: list[list[Event]] = [[] for _ in steps]
    for span in trace.spans:
        if span.cat == "compute" and span.name in {"forward", "backward", "step"}:
            (place,) = (
                i for i, s in enumerate(steps) if s.ts_ns <= span.ts_ns and span.end_ns <= s.end_ns
            )
            found[place].append(span)
    return found


@pytest.mark.parametrize("seed", range(times(1000, 0.02)))
def test_random_trainings_have_the_steps_of_the_rule(seed: int, traced: Traced, auto: Auto) -> None:
    plain, program = Program(seed), Program(seed)
    plain.run()
    with traced(perfetto=False) as run:
        auto(parts="steps,forward,backward,optimizer,data")
        program = Program(seed)
        program.run()
        auto.remove()
    assert program.losses == plain.losses
    steps, expected = steps_of(run.trace), program.rule.steps
    assert [e.args["microbatches"] for e in steps] == [max(one.values()) for one in expected]
    work = work_in(steps, run.trace)
    assert [sum(e.name == "step" for e in one) for one in work] == [len(one) for one in expected]
    for step, inside in zip(steps, work, strict=True):
        # Whose an update is may be known only when an optimizer steps, where two take turns.
        sure = inside if len(program.nets) == 1 else [e for e in inside if e.name == "step"]
        assert {numbers(e) for e in sure} == {numbers(step)}


NET = nn.Linear(2, 1)
OPTIMIZER, OTHER = (torch.optim.SGD(NET.parameters(), 0.01) for _ in range(2))


def learn(x: torch.Tensor, *optimizers: torch.optim.Optimizer) -> None:
    for one in optimizers or (OPTIMIZER,):
        one.zero_grad()
        NET(x).square().mean().backward()
        one.step()


def loader(batches: int) -> DataLoader:
    return DataLoader(torch.ones(batches, 2))


def another_optimizer_behind_a_loop_that_was_left() -> None:
    for x in loader(4):
        learn(x)
        break
    for _ in range(3):
        learn(torch.ones(1, 2), OTHER)


def a_policy_behind_a_loader() -> None:
    for x in loader(2):
        learn(x)
    for _ in range(3):
        with torch.no_grad():
            observed = [NET(torch.ones(1, 2)) for _ in range(3)]
        learn(torch.cat(observed).expand(-1, 2))


def gradients_by_hand() -> None:
    for _ in range(3):
        NET.weight.grad = torch.ones(1, 2)
        OPTIMIZER.step()


def closures_in_a_batch() -> None:
    optimizer = torch.optim.LBFGS(NET.parameters(), max_iter=2)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = NET(x).square().mean()
        loss.backward()
        return loss

    for x in loader(3):
        for _ in range(2):
            optimizer.step(closure)


def judged_behind_the_step() -> None:
    for x in loader(4):
        learn(x)
        NET(x)


STEPS: list[tuple[Callable[[], None], int]] = [
    (another_optimizer_behind_a_loop_that_was_left, 4),
    (a_policy_behind_a_loader, 5),
    (gradients_by_hand, 3),
    (closures_in_a_batch, 6),
    (judged_behind_the_step, 4),
]
"""What no random training does."""


def test_an_update_is_a_step_however_often_a_batch_is_used(traced: Traced, auto: Auto) -> None:
    for train, expected in STEPS:
        with traced(perfetto=False) as run:
            auto()
            train()
            auto.remove()
        steps = steps_of(run.trace)
        assert (train, len(steps)) == (train, expected)
        for step, inside in zip(steps, work_in(steps, run.trace), strict=True):
            assert {numbers(e) for e in inside} == {numbers(step)}


def test_spans_by_hand_have_the_numbers_of_the_step_unless_they_are_given_others(
    traced: Traced, auto: Auto
) -> None:
    made_before = ai.comm.reduce(layer="first")

    @ai.comm.derive("decorated")
    def decorated() -> None:
        pass

    def by_hand(number: int) -> None:
        with ai.comm.send, made_before, ai.comm.all_reduce(step=100 + number, bytes=4):
            decorated()
        with ai.comm.receive(args={"step": "late"}), ai.pipeline.test, ai.comm.barrier(sizes=[1]):
            pass
        ai.comm.gather.start()
        ai.comm.gather.stop()
        list(ai.comm.scatter.iter([number]))

    with traced(perfetto=False) as run:
        auto()
        by_hand(1)  # nothing is learned yet
        for number, x in enumerate(loader(4)):
            NET(x).square().mean().backward()
            if number % 2:
                OPTIMIZER.step()
            by_hand(number)
        in_a_thread = Thread(target=by_hand, args=[9])
        in_a_thread.start()
        in_a_thread.join()
        auto.remove()
        by_hand(0)

    def expected(number: int, **args: int) -> list[tuple[str, dict[str, object]]]:
        return [
            *[("send", args), ("reduce", args), ("all_reduce", args | {"step": 100 + number})],
            *[("comm.decorated", args), ("receive", args | {"step": "late"})],
            *[("test", {}), ("barrier", {}), ("gather", args)],
            *[("scatter.iter", args), ("scatter.block", args)],
        ]

    told = [
        (e.name, {key: e.args[key] for key in ("step", "microbatch", "epoch") if key in e.args})
        for e in sorted(run.trace.spans, key=lambda e: e.ts_ns)
        if e.name in dict(expected(0))
    ]
    steps = [expected(n, step=n // 2, microbatch=n % 2, epoch=0) for n in range(4)]
    last = expected(9, epoch=0)  # no step is on
    assert told == [*expected(1), *sum(steps, []), *last, *expected(0)]


def test_what_is_said_of_spans_of_auto_holds_until_they_are_told_anew(
    traced: Traced, auto: Auto
) -> None:
    said: list[Callable[[], object]] = [
        lambda: None,
        lambda: ai.compute.forward.update(d=4),  # of neither of those below
        lambda: ai.compute.update(step=70),
        lambda: ai.compute.update(a=1, b=2),  # with those of the step more than are kept as numbers
        lambda: ai.compute.update(args={"step": "late", "sizes": [1]}),
        lambda: ai.compute.reset(),
        lambda: ai.compute.update(c=3),
    ]
    with traced(perfetto=False) as run:
        auto()
        for (x,), say in zip(loader(len(said)), said, strict=True):
            say()
            for _ in range(2):
                NET(x).square().mean().backward()
            OPTIMIZER.step()
        auto.remove()
    ai.compute.reset()
    found = [
        [(key, one.args[key]) for key in one.args if key not in ("hhash", "p_idx", "level")]
        for one in sorted(run.trace.spans, key=lambda e: e.ts_ns)
        if one.name in ("backward", "step") and one.cat == "compute"
    ]

    def told(step: object, microbatch: int = 0, **more: object) -> list[tuple[str, object]]:
        numbers = {"epoch": 0, "step": step, "microbatch": microbatch}
        return list((numbers | more).items())

    a_b, late = {"a": 1, "b": 2}, {"a": 1, "b": 2, "sizes": [1]}
    again = [("microbatch", 1)]
    last = [("microbatch", 0), ("epoch", 0), ("step", 6), ("c", 3)]
    assert found == [
        *[told(0), told(0, 1), told(0, 1)],
        *[told(1), told(1, 1), told(1, 1)],
        *[told(70), told(70, 1), told(70, 1)],
        *[told(3, 0, **a_b), told(3, 1, **a_b), told(3, 1, **a_b)],
        *[told("late", 0, **late), told("late", 1, **late), told("late", 1, **late)],
        *[[], again, again],
        *[last, *[[("microbatch", 1), *last[1:]]] * 2],
    ]


def as_they_come(loader: DataLoader) -> Iterator[torch.Tensor]:
    yield from (x for (x,) in loader)


def four_at_once(loader: DataLoader) -> Iterator[torch.Tensor]:
    """All batches of an optimizer's step are fetched first, and one more."""
    batches = one_ahead(loader)
    while some := list(islice(batches, 4)):
        yield from some


@pytest.mark.parametrize(
    ("batches_of", "accumulated"),
    [(as_they_come, 1), (one_ahead, 1), (one_ahead, 4), (four_at_once, 4)],
)
def test_steps_and_passes_end_with_the_last_batch_that_is_used(
    traced: Traced, auto: Auto, batches_of, accumulated: int
) -> None:
    """As accelerate and Trainer do, which fetch ahead."""
    data = TensorDataset(torch.arange(48.0).reshape(24, 2))
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    with traced(perfetto=False) as run:
        auto()
        list(DataLoader(data, batch_size=24))  # a look, which is neither epoch nor evaluation
        for _ in range(2):
            model.train()
            for number, x in enumerate(batches_of(DataLoader(data, batch_size=3)), 1):
                model(x).sum().backward()
                if number % accumulated == 0:
                    optimizer.step()
            model.eval()
            with torch.no_grad():
                for x in batches_of(DataLoader(data, batch_size=24)):
                    model(x)
        auto.remove()
    spans = run.trace.spans
    steps = steps_of(run.trace)
    assert [e.args["microbatches"] for e in steps] == [accumulated] * (16 // accumulated)

    def within(name: str, outer: list) -> list[int]:
        return [
            sum(o.ts_ns <= e.ts_ns and e.end_ns <= o.end_ns for o in outer)
            for e in spans
            if (e.cat, e.name) in {("compute", name), ("dataloader", name), ("pipeline", name)}
            and e not in outer
        ]

    passes = {n: [e for e in spans if e.name == n] for n in ("epoch", "evaluate")}
    assert [len(found) for found in passes.values()] == [2, 2]
    assert within("forward", steps) == [1] * 16
    assert sorted(within("fetch.iter", steps)) == [0] * 3 + [1] * 16
    assert within("fetch.iter", passes["epoch"] + passes["evaluate"]) == [0] + [1] * 18
    assert [e.args["epoch"] for e in passes["epoch"]] == [0, 1]
    assert within("forward.eval", passes["evaluate"]) == [1] * 2
    assert within("forward", passes["epoch"]) == [1] * 16
    ends = [e.args["step"] for e in steps if any(e.end_ns == o.end_ns for o in passes["epoch"])]
    last = [8 // accumulated - 1, 16 // accumulated - 1]
    # One that is asked for another batch ends with the answer, that there is none.
    assert ends == ([] if batches_of is as_they_come else last)
