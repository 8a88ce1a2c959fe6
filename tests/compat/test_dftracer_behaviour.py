"""Programs written for dftracer do by the names of dftracer what they did, and their spans are traced."""

from __future__ import annotations

import pytest
from conftest import RunScript

PROGRAM = """
import copy, json, pickle
import dftrace_ai
from dftrace_ai.compat.dftracer import *
from dftrace_ai.compat.dftracer import EntityRelation, EntityStore

log = dftracer.initialize_log(process_id=-1)
assert log is dftracer.get_instance() and log.logger.get_time() >= log.start_time > 0

# The one tree, seen by dftracer's classes.
assert isinstance(ai, AI) and isinstance(ai, dftrace_ai.annotation.tree.Tree)
assert isinstance(compute, Compute) and compute is ai.compute and isinstance(data.io, IO)
assert type(compute.forward) is type(ai.data.preprocess.derive("collate")) is DFTracerAI
assert set(ai._children) == {"compute", "data", "dataloader", "comm", "device", "checkpoint",
                             "pipeline", "host", "other"}
assert compute._children["forward"] is compute.forward and data._children["io"] is data.io
for node in (compute.forward, ai, data.io.read, data.preprocess.derive("collate")):
    assert pickle.loads(pickle.dumps(node)) is node is copy.deepcopy(node)

# Arguments, as dftracer's fields have them.
assert ai.update(epoch=5, args={"lr": TagValue(0.1, TagDType.FLOAT), "who": "a"}) is ai
fields = compute.forward.profiler
assert fields is compute.forward.profiler
assert fields._arguments_int["epoch"] == (0, 5) and fields._arguments_float["lr"] == (0, 0.1)
assert dict(fields._arguments_string) == {"who": (0, "a")} and len(fields._arguments_int) == 1
fields._arguments_int["micro"] = TagValue(3, TagDType.INT).value()
del fields._arguments_string["who"]
assert (fields._cat, fields._name, fields._enable) == ("compute", "forward", True)

@compute.forward(image_size=224)
def forward(): ...
forward(); compute.forward(fn=lambda: None)()
with compute.forward:
    pass
for _ in ai.pipeline.epoch.iter(iterator=range(2), include_iter=False, block_name="one"):
    pass
class Dataset:
    @ai.data.item.init
    def __init__(self): ...
Dataset()
comm.disable()
with comm.all_reduce: raise_nothing = 1
with comm.send(enable=True): ...
comm.enable()
ai._clear_args()

# Nodes of one's own: by arguments, by a class, by children.
class Storage(DFTracerAI):
    def __init__(self, tier):
        super().__init__(cat="storage", name=f"storage.{tier}", step=7)
        self.tier = tier
        self.create_children({"get": "storage.get"})
        self._children["put"] = DFTracerAI(cat="storage", name="storage.put")
storage = Storage("fast")
storage.update(epoch=1)
for node in (storage, storage.get, storage._children["put"], pickle.loads(pickle.dumps(storage)).get):
    with node: ...
assert pickle.loads(pickle.dumps(storage)).tier == "fast"
own = AI(epoch=9)
with own.comm.bcast: ...
with IO(cat="data", parent_name="shard").read: ...
assert "epoch" not in compute.forward._copy_args()

# Functions, entities, what is told by hand.
io = dft_fn("io")
assert io._name == "<module>" and io._enable
@io.log
def read(step, image_size=3): return step
class Reader:
    epoch = 2
    @io.log
    def next(self): ...
    @io.log_static
    def fixed(): ...
read(4)
assert io._arguments_int["step"] == (0, 4) and io._arguments_float["image_size"] == (0, 3.0)
Reader().next(); Reader.fixed()
with dft_fn("io", "consume") as span:
    one = span.uses("dataset", "train", EntityStore.PARALLEL_FS, "/data")
    two = span.generates("model", 1)
    assert span.relate(EntityRelation.CONTAINS, one) is span
assert one == log.declare_entity("dataset", "train", EntityStore.PARALLEL_FS, "/data") != two
log.declare_entity_type("dataset", EntityRole.INPUT, "samples")
log.relate_entities(EntityRelation.DERIVED_FROM, two, one)
log.relate_entities(EntityRelation.USED, two, one)
log.log_event("told", ProfileCategory.DATA, log.get_time(), 5, {"n": TagValue(1, TagDType.INT).value()},
              {"f": (0, 0.5)}, {"s": (2, "x")}, relations={EntityRelation.USED: [one]})
log.set_app_metadata_int("nodes", 4)
log.set_app_metadata_string("app", "unet")
log.mark_used("ai")
assert get_time_scale() == 1e6 and log.get_config("DFTRACER_TIME_METRIC") == "US"
assert get_iter_block_name("a") == get_iter_block_name("a.block") == "a.block"
assert get_default_args(read) == {"image_size": 3}
print(json.dumps([f"{one:016x}", f"{two:016x}"]))
log.finalize()
assert log.get_time() == 0 == log.declare_entity("a", "b")
"""


def test_a_program_by_dftracers_names(run_script: RunScript) -> None:
    done = run_script(PROGRAM)
    trace = done.trace()
    ((one, two),) = done.said
    assert trace.names == {
        "forward": 3,
        "one": 2,
        "item.init": 1,
        "send": 1,
        "storage.fast": 1,
        "storage.get": 2,
        "storage.put": 1,
        "bcast": 1,
        "shard.io.read": 1,
        "read": 1,
        "Reader.next": 1,
        "Reader.fixed": 1,
        "consume": 1,
        "told": 1,
    }
    decorated, called, block = trace.named("forward")
    assert decorated.user == {"epoch": 5, "lr": 0.1, "micro": 3, "image_size": 224}
    assert called.user == block.user == {"epoch": 5, "lr": 0.1, "micro": 3}
    assert trace.one("storage.fast").user == {"step": 7, "epoch": 1}
    assert [e.user for e in trace.named("storage.get")] == [{"step": 7, "epoch": 1}] * 2
    assert trace.one("storage.put").user == {"epoch": 1}
    assert trace.one("bcast").user == {"epoch": 9}
    assert trace.one("read").user == {"step": 4, "image_size": 3}
    assert trace.one("Reader.next").user == {"epoch": 2}
    assert trace.one("consume").user == {"used": [one], "generated": [two]}
    told = trace.one("told")
    assert (told.cat, told.user) == ("data", {"n": 1, "f": 0.5, "s": "x", "used": [one]})
    assert [key for key, _ in trace.marks] == [
        *("entity", "entity", "entity_type", "entity_relation", "nodes", "app"),
    ]
    assert trace.marks[0][1].count("parallel_fs") == trace.marks[0][1].count(one) == 1


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_operators_of_compiled_graphs_are_spans(run_script: RunScript) -> None:
    pytest.importorskip("torch")
    done = run_script(
        """
        import json
        import torch
        import dftrace_ai.compat.dftracer.dynamo
        from dftrace_ai.compat.dftracer import ai, create_backend, dftracer, dynamo
        from dftrace_ai.compat.dftracer.torch import trace_handler

        log = dftracer.initialize_log()
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
        x = torch.ones(2, 4)

        @dynamo.compile
        def step(x):
            return model(x).sum()

        dynamo.update(epoch=3)
        with ai.compute.forward:
            loss = step(x)
        loss.backward()
        grads = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        want = model(x).sum()
        want.backward()
        assert torch.equal(loss, want)
        assert all(map(torch.equal, grads, [p.grad for p in model.parameters()]))

        backend = create_backend("mine", step=1, autograd=False)
        compiled = torch.compile(lambda x: (x * 2).relu(), backend=backend)
        assert torch.equal(compiled(x), x * 2)
        off = create_backend(enable=False, autograd=False)
        assert torch.equal(torch.compile(lambda x: x - 7, backend=off)(x), x - 7)
        assert dynamo.count_parameters(model) == 15 and dynamo.count_parameters(3) is None
        with torch.profiler.profile(on_trace_ready=trace_handler):
            torch.mm(x, x.T)
        log.finalize()
        """
    )
    trace = done.trace()
    (forward,) = trace.named("forward")
    operators = [e for e in trace.spans if e.cat == "dynamo" and "epoch" in e.user]
    inside = {e.name for e in operators if e.p_idx == forward.id}
    assert {"function.addmm.default", "function.relu.default", "function.sum.default"} <= inside
    backward = {e.name for e in operators if e.p_idx != forward.id}
    assert "function.mm.default" in backward
    assert all(e.user["epoch"] == 3 and e.user["grad_enabled"] in (0, 1) for e in operators)
    plain = [e for e in trace.spans if e.cat == "dynamo" and "epoch" not in e.user]
    assert {e.name for e in plain} == {"function.mul", "method.relu"}
    assert all(e.user["step"] == 1 for e in plain)
    assert any(e.name == "aten::mm" and e.cat == "PP" for e in trace.spans)


def test_the_tree_stays_what_it_is_for_others(run_script: RunScript) -> None:
    """A library that is annotated for dftracer shares the tree with programs that are not."""
    code = """
from dftrace_ai import ai
classes = lambda: [type(n) for n in (ai, ai.compute, ai.data.io, ai.compute.forward, derived)]
derived = ai.compute.derive("of_before")
before = classes()
import dftrace_ai.compat.dftracer as old
assert classes() == before and type(ai.compute.forward(step=1)) is type(ai.compute.forward)
assert type(old.compute.forward(step=1)) is type(old.compute.forward(a="b")) is old.DFTracerAI

# What is set by one name holds by the other, before and after, for what exists and what comes.
nodes = lambda: [n for tree in (ai, old.ai) for n in (tree.compute.forward, tree.compute.derive("x"),
                 tree.compute.derive("of_before"), tree.data.io.read, tree.derive("top"))]
def holds(**wanted):
    return all(node._copy_args() == wanted for node in nodes())
ai.update(step=1)
assert holds(step=1)
old.ai.update(step=2, who="b")
assert holds(step=2, who="b")
old.ai.profiler._arguments_int["step"] = old.TagValue(3, old.TagDType.INT).value()
assert holds(step=3, who="b")
ai.reset()
assert holds()
old.compute.disable()
assert [node.enabled for node in nodes()] == 2 * [False, False, False, True, True]
ai.compute.enable()
assert all(node.enabled for node in nodes())

with ai.compute.forward(args={"a": 1}), old.compute.forward(epoch=4):
    assert ai.compute.forward._copy_args() == {}
assert list(ai.dataloader.fetch.iter(iterable=[1, 2])) == [1, 2]
assert list(old.ai.dataloader.fetch.iter(iterator=[1, 2])) == [1, 2]
"""
    done = run_script("import dftrace_ai; dftrace_ai.initialize()" + code)
    assert done.stderr == ""
    outer, inner = done.trace().named("forward")
    assert (outer.user, inner.user, inner.p_idx) == ({"a": 1}, {"epoch": 4}, outer.id)
