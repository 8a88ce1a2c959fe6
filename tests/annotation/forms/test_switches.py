"""derive, update, reset, enable, disable, and forcing by parentheses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import Traced

from dftrace_ai import ai


@pytest.fixture(autouse=True)
def _as_found() -> Iterator[None]:
    yield
    ai.enable()
    ai.reset()


def test_update_reaches_the_subtree_and_nothing_else(traced: Traced) -> None:
    with traced() as rec:
        ai.compute.update(epoch=1, precision="fp8")
        for node in (ai.compute, ai.compute.forward, ai.compute.forward.init, ai.data.item):
            with node:
                pass
        ai.update(epoch=2, args={"run": "a"})
        for node in (ai, ai.compute.forward, ai.data.io.open):
            with node:
                pass
    t = rec.trace
    one = {"epoch": 1, "precision": "fp8"}
    two = {"epoch": 2, "run": "a"}
    assert [(e.name, e.user) for e in t.spans] == [
        ("compute", one),
        ("forward", one),
        ("forward.init", one),
        ("item", {}),
        ("ai_root", two),
        ("forward", {**one, **two}),
        ("data.io.open", two),
    ]


def test_the_last_write_wins(traced: Traced) -> None:
    with traced() as rec:
        ai.compute.forward.update(step=1, epoch=1)
        ai.compute.update(step=2)
        with ai.compute.forward:
            pass
        ai.compute.forward.update(step=3)
        with ai.compute.forward, ai.compute.backward:
            pass
        ai.compute.update(image_idx=4, image_size=2.5)
        with ai.compute.forward:
            pass
    assert [e.user for e in rec.trace.named("forward")] == [
        {"step": 2, "epoch": 1},
        {"step": 3, "epoch": 1},
        {"step": 3, "epoch": 1, "image_idx": 4, "image_size": 2.5},
    ]
    assert rec.trace.one("backward").user == {"step": 2}


def test_a_span_has_the_arguments_of_its_start_or_end_but_never_a_mixture(traced: Traced) -> None:
    with traced() as rec, ai.compute.forward:
        ai.compute.forward.update(step=1, epoch=1)
        with ai.compute.forward:
            pass
    outer, inner = rec.trace.named("forward")
    assert outer.user in ({}, {"step": 1, "epoch": 1})
    assert inner.user == {"step": 1, "epoch": 1}


def test_the_same_name_as_a_tree_and_free_keyword(traced: Traced) -> None:
    with traced() as rec:
        ai.compute.forward.update(name="n", cat="c", pid=1, ts=2, layer="conv1", dur=3)
        with ai.compute.forward:
            pass
    e = rec.trace.one("forward")
    assert e.cat == "compute"
    assert {k: e.user[k] for k in ("name", "cat", "layer")} == {
        "name": "n",
        "cat": "c",
        "layer": "conv1",
    }


@pytest.mark.parametrize("key", ["hhash", "p_idx", "level", "count", "error", "unfinished"])
def test_the_formats_own_keys_are_not_overwritten(traced: Traced, key: str) -> None:
    """The user's value stays beside them, under the same name or with a `_` behind it."""
    args = {key: 77, "ok": 1}
    with traced() as rec, ai.pipeline.train:
        with pytest.raises(KeyError), ai.compute.forward(args=args):
            raise KeyError
        ai.data.item.update(args=args)
        list(ai.data.item.iter("ab"))
        ai.instant("mark", args=args)
        ai.compute.step(args=args).start()
    t = rec.trace
    (failed,) = t.named("forward")
    assert failed.args["error"] == "KeyError"
    assert [e.args["count"] for e in t.named("item.block")] == [1, 2]
    assert t.one("step").args["unfinished"] is True
    for e in [failed, t.one("mark"), t.one("step"), *t.named("item.iter")]:
        assert e.args["hhash"] == t.header["hhash"]
        assert e.user["ok"] == 1
        assert 77 in (e.args.get(key), e.args.get(f"{key}_"))
    assert t.parent(failed) is t.one("train")
    assert failed.level == 2


def test_values_are_snapshots(traced: Traced) -> None:
    shape = [1, 2]
    with traced() as rec:
        ai.compute.forward.update(shape=shape)
        with ai.compute.forward:
            pass
        shape.append(3)
        ai.compute.forward.update(step=1)
        with ai.compute.forward:
            pass
    first, second = rec.trace.named("forward")
    assert first.user == {"shape": [1, 2]}
    assert second.user["step"] == 1


def test_ten_thousand_updates_each_seen_once(traced: Traced) -> None:
    with traced(overflow="wait") as rec:
        for i in range(10_000):
            ai.compute.forward.update(step=i, epoch=i // 100)
            with ai.compute.forward:
                pass
    got = [(e.user["step"], e.user["epoch"]) for e in rec.trace.named("forward")]
    assert got == [(i, i // 100) for i in range(10_000)]


def test_reset_forgets(traced: Traced) -> None:
    with traced() as rec:
        ai.compute.update(epoch=1)
        ai.compute.forward.reset()
        with ai.compute.forward, ai.compute.backward:
            pass
        ai.reset()
        with ai.compute.backward:
            pass
    assert [e.user for e in rec.trace.spans] == [{}, {"epoch": 1}, {}]


def test_derive(traced: Traced) -> None:
    collate = ai.data.preprocess.derive(name="collate")

    @ai.data.preprocess.derive(name="pad")
    def pad(x: int) -> int:
        return x + 1

    assert (collate.name, collate.cat) == ("preprocess.collate", "data")
    assert ai.data.preprocess.derive(name="collate") is collate
    with traced() as rec:
        ai.data.preprocess.update(epoch=1)
        with collate:
            assert pad(1) == 2
        collate.update(epoch=2)
        with collate, ai.data.preprocess, collate.derive(name="deep"):
            pass
        ai.data.preprocess.disable()
        with collate:
            pad(1)
        collate.enable()
        with collate:
            pad(1)
        ai.data.enable()
        pad(1)
    t = rec.trace
    assert {e.cat for e in t.spans} == {"data"}
    assert [(e.name, e.user["epoch"]) for e in t.spans] == [
        ("preprocess.collate", 1),
        ("preprocess.pad", 1),
        ("preprocess.collate", 2),
        ("preprocess", 1),
        ("preprocess.collate.deep", 2),
        ("preprocess.collate", 2),
        ("preprocess.pad", 1),
    ]


def test_a_node_derived_later_takes_over_arguments_and_state(traced: Traced) -> None:
    with traced() as rec:
        ai.comm.update(epoch=3)
        ai.comm.send.disable()
        late = ai.comm.send.derive(name="late_off")
        on = ai.comm.receive.derive(name="late_on")
        with late, on:
            pass
    assert [(e.name, e.user) for e in rec.trace.spans] == [("receive.late_on", {"epoch": 3})]


def test_enable_and_disable_by_level(traced: Traced) -> None:
    def burst() -> None:
        with ai.compute, ai.compute.forward, ai.data.item, ai.data.io.read:
            pass

    with traced() as rec:
        ai.compute.disable()
        burst()
        ai.compute.forward.enable()
        burst()
        ai.disable()
        burst()
        ai.data.io.enable()
        burst()
        ai.enable()
        burst()
    seen = [e.name for e in rec.trace.spans]
    assert seen == [
        *("item", "data.io.read"),
        *("forward", "item", "data.io.read"),
        "data.io.read",
        *("compute", "forward", "item", "data.io.read"),
    ]


def test_a_disabled_span_leaves_no_gap_in_parents_and_levels(traced: Traced) -> None:
    with traced() as rec:
        ai.compute.disable()
        with ai.pipeline.train, ai.compute, ai.compute.forward, ai.comm.send:
            pass
    assert rec.trace.tree() == [["train", [["send", []]]]]


def test_switched_while_the_span_is_open(traced: Traced) -> None:
    with traced() as rec:
        with ai.compute.forward:
            ai.compute.disable()
            with ai.comm.send:
                pass
        with ai.compute.forward:
            ai.compute.enable()
            with ai.comm.receive:
                pass
        with ai.compute.step:
            pass
    t = rec.trace
    assert t.tree() == [["forward", [["send", []]]], ["receive", []], ["step", []]]
    assert t.footer["unmatched_stops"] == 0


def test_decorated_without_parentheses_follows_the_switch(traced: Traced) -> None:
    class Checkpoint:
        @ai.checkpoint.init
        def __init__(self) -> None:
            pass

    with traced() as rec:
        Checkpoint()
        ai.checkpoint.disable()
        Checkpoint()
        ai.checkpoint.enable()
        Checkpoint()
    assert rec.trace.names == {"checkpoint.init": 2}


def test_decorated_with_parentheses_keeps_the_state_of_its_making(traced: Traced) -> None:
    """The documented caveat: parentheses make an instance that later switches do not reach."""

    class Early:
        @ai.checkpoint.init()
        def __init__(self) -> None:
            pass

    with traced() as rec:
        ai.checkpoint.disable()

        class Late:
            @ai.checkpoint.init(args={"late": True})
            def __init__(self) -> None:
                pass

        Early()
        Late()
        ai.checkpoint.enable()
        Early()
        Late()
    assert [e.user for e in rec.trace.spans] == [{}, {}]


def test_forcing_by_parentheses(traced: Traced) -> None:
    with traced() as rec:
        ai.compute.disable()

        @ai.compute.forward(enable=True)
        def forced_on() -> None:
            with ai.compute.step:
                pass

        forced_on()
        with ai.compute.backward(enable=True, step=1):
            pass
        ai.compute.enable()

        @ai.compute.forward(enable=False)
        def forced_off() -> None:
            with ai.compute.step:
                pass

        forced_off()
        with ai.compute.backward(enable=False):
            pass
        ai.compute.disable()
        forced_on()
    assert rec.trace.tree() == [["forward", []], ["backward", []], ["step", []], ["forward", []]]


def test_disable_silences_every_form(traced: Traced) -> None:
    with traced() as rec:
        with ai.pipeline.train:
            ai.disable()
            node = ai.compute.forward
            node.start()
            node.stop()
            node.start(metadata=True)
            node.stop(metadata=True)
            with node, node.init, node.derive(name="x"), node(step=1):
                pass
            assert node(lambda: 3)() == 3
            assert list(node.iter([1])) == [1]
            ai.enable()
        with ai.pipeline.test:
            pass
    assert rec.trace.tree() == [["train", []], ["test", []]]
    assert rec.trace.footer["events"] == 2


def test_io_off_disables_only_io_nodes(traced: Traced) -> None:
    with traced(io=False) as rec:
        for node in (ai.data.io.read, ai.checkpoint.io, ai.other.io.write, ai.other.log):
            with node:
                pass
        with ai.data.item:
            pass
    assert rec.trace.names == {"other.log": 1, "item": 1}
    with traced() as again, ai.data.io.read:
        pass
    assert again.trace.names == {"data.io.read": 1}


def test_args_off_leaves_the_users_arguments_out(traced: Traced) -> None:
    with traced(args=False) as rec:
        ai.update(epoch=1)
        with ai.compute.forward(args={"secret": "x"}):
            pass
        for _ in ai.data.item.iter("a"):
            pass
    t = rec.trace
    assert t.one("forward").user == {}
    assert set(t.one("item.block").user) <= {"count"}


def test_disabled_run_writes_nothing(traced: Traced) -> None:
    with traced(enabled=False) as rec:
        with ai.compute.forward:
            ai.instant("x")
        ai.counter("loss", values={"loss": 1})
    assert rec.traces == []
