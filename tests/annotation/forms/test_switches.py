"""update, enable and disable, and what settings leave out; for orders of these see `test_shared_tree.py`."""

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


def test_the_formats_own_keys_are_not_overwritten(traced: Traced) -> None:
    """The user's value stays beside them, under the same name or with a `_` behind it."""
    for key in ("hhash", "p_idx", "level", "count", "error", "unfinished"):
        args = {key: 77, "ok": 1}
        with traced() as rec, ai.pipeline.train:
            with pytest.raises(KeyError), ai.compute.forward(args=args):
                raise KeyError
            ai.data.item.update(args=args)
            list(ai.data.item.iter("ab"))
            ai.instant("mark", args=args)
            ai.compute.step(args=args).start()
        t = rec.trace
        ai.reset()
        (failed,) = t.named("forward")
        assert failed.args["error"] == "KeyError"
        assert [e.args["count"] for e in t.named("item.block")] == [1, 2]
        assert t.one("step").args["unfinished"] is True
        for e in [failed, t.one("mark"), t.one("step"), *t.named("item.iter")]:
            assert e.args["hhash"] == t.header["hhash"]
            assert e.user["ok"] == 1
            assert 77 in (e.args.get(key), e.args.get(f"{key}_"))
        assert t.parent(failed) is t.one("train")


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
