"""Who takes part in which span bench, and what each must reach."""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.figures import Bench, Target

OURS = "dftrace_ai"
DFTRACER = "pydftracer"


@dataclass(frozen=True)
class WorkerKind:
    """How to start a contestant's process.

    Args:
        module: the module under contestants/.
        mode: handed to its Contestant.
        home: which interpreter: "main" has dftrace_ai and torch, "peers" the other tools.
        env: what is added to the environment.
    """

    module: str
    mode: str = "on"
    home: str = "main"
    env: dict[str, str] = field(default_factory=dict)

    @property
    def package(self) -> str:
        """The name under which its version is shown."""
        return PACKAGES[self.module]


PACKAGES = {
    "plain": "python",
    "ours": "dftrace_ai",
    "loggers": "dftrace_ai",
    "pydftracer_peer": "pydftracer",
    "viztracer_peer": "viztracer",
    "nvtx_peer": "nvtx",
    "record_function_peer": "torch",
    "opentelemetry_peer": "opentelemetry-sdk",
}


@dataclass(frozen=True)
class Entry:
    """One line of a bench: a label, and which subject of which worker is timed for it."""

    label: str
    worker: str
    subject: str


@dataclass
class SpanBench:
    """A bench with its line-up."""

    bench: Bench
    entries: list[Entry]
    most_rounds: int = 1000


WORKERS: dict[str, WorkerKind] = {
    "plain": WorkerKind("plain"),
    "ours": WorkerKind("ours", "on"),
    "ours-apart": WorkerKind("ours", "apart"),
    "ours-off": WorkerKind("ours", "off"),
    "ours-inert": WorkerKind("ours", "inert"),
    "pydftracer": WorkerKind(
        "pydftracer_peer",
        "on",
        "peers",
        {"DFTRACER_ENABLE": "1", "DFTRACER_INC_METADATA": "1"},
    ),
    "pydftracer-off": WorkerKind("pydftracer_peer", "off", "peers", {"DFTRACER_ENABLE": "0"}),
    "viztracer": WorkerKind("viztracer_peer", "on", "peers"),
    "nvtx": WorkerKind("nvtx_peer", "on", "peers"),
    "record_function": WorkerKind("record_function_peer", "idle"),
    "record_function-profiled": WorkerKind("record_function_peer", "profiled"),
    "opentelemetry": WorkerKind("opentelemetry_peer", "on", "peers"),
    "loggers-local": WorkerKind("loggers", "local"),
    "loggers-several": WorkerKind("loggers", "several"),
}


def _peers(subject: str) -> list[Entry]:
    return [
        Entry(DFTRACER, "pydftracer", subject),
        Entry("viztracer", "viztracer", subject),
        Entry("nvtx, no profiler", "nvtx", subject),
        Entry("record_function, no profiler", "record_function", subject),
        Entry("record_function, profiled", "record_function-profiled", subject),
        Entry("opentelemetry", "opentelemetry", subject),
    ]


def _pair(name: str, title: str, subject: str, limit: float | None) -> SpanBench:
    targets = [Target(OURS, limit, DFTRACER)] if limit else []
    return SpanBench(
        Bench(name, title, "ns", targets=targets, reference=OURS),
        [Entry(OURS, "ours", subject), Entry(DFTRACER, "pydftracer", subject)],
    )


def span_benches() -> list[SpanBench]:
    """Return the benches that time spans, in the order they are shown."""
    enabled_with = SpanBench(
        Bench(
            "with",
            "`with node: pass`, enabled, epoch and step set",
            "ns",
            targets=[Target(OURS, 0.5, "empty class"), Target(OURS, 1 / 80, DFTRACER)],
            reference=OURS,
        ),
        [
            Entry("empty class", "plain", "empty_class"),
            Entry(OURS, "ours", "with"),
            Entry("dftrace_ai, looked up from the root", "ours", "walked_with"),
            Entry("nullcontext", "plain", "nullcontext"),
            Entry("class taking two times", "plain", "timed_class"),
            Entry("@contextmanager", "plain", "contextmanager"),
            *_peers("with"),
        ],
    )
    enabled_call = SpanBench(
        Bench(
            "call",
            "decorated call, enabled: overhead over the bare call",
            "ns",
            targets=[Target(OURS, 0.7, "pass-through wrapper"), Target(OURS, 1 / 100, DFTRACER)],
            reference=OURS,
        ),
        [
            Entry("pass-through wrapper", "plain", "wrapper"),
            Entry(OURS, "ours", "call"),
            *_peers("call"),
        ],
    )
    disabled_with = SpanBench(
        Bench(
            "with_off",
            "`with node: pass`, disabled",
            "ns",
            targets=[
                Target("dftrace_ai, ai.disable()", 0.4, "nullcontext"),
                Target("dftrace_ai, not initialised", 0.4, "nullcontext"),
            ],
            reference="dftrace_ai, ai.disable()",
        ),
        [
            Entry("nullcontext", "plain", "nullcontext"),
            Entry("dftrace_ai, ai.disable()", "ours-off", "with"),
            Entry("dftrace_ai, not initialised", "ours-inert", "with"),
            Entry("pydftracer, DFTRACER_ENABLE=0", "pydftracer-off", "with"),
        ],
    )
    disabled_call = SpanBench(
        Bench(
            "call_off",
            "decorated call, disabled: overhead over the bare call",
            "ns",
            targets=[
                Target("dftrace_ai, ai.disable()", 0.4, "pass-through wrapper"),
                Target("dftrace_ai, not initialised", 0.4, "pass-through wrapper"),
            ],
            reference="dftrace_ai, ai.disable()",
        ),
        [
            Entry("pass-through wrapper", "plain", "wrapper"),
            Entry("dftrace_ai, ai.disable()", "ours-off", "call"),
            Entry("dftrace_ai, not initialised", "ours-inert", "call"),
            Entry("pydftracer, DFTRACER_ENABLE=0", "pydftracer-off", "call"),
        ],
    )
    threads = SpanBench(
        Bench(
            "threads",
            "`with node: pass` on one node by 8 threads: wall time per event of all threads",
            "ns",
            targets=[Target("dftrace_ai, 8 threads", 1.5, "dftrace_ai, 1 thread")],
            reference="dftrace_ai, 1 thread",
        ),
        [
            Entry("dftrace_ai, 1 thread", "ours", "threads_1"),
            Entry("dftrace_ai, 8 threads", "ours", "threads_8"),
            Entry("empty class, 1 thread", "plain", "threads_1"),
            Entry("empty class, 8 threads", "plain", "threads_8"),
            Entry("pydftracer, 1 thread", "pydftracer", "threads_1"),
            Entry("pydftracer, 8 threads", "pydftracer", "threads_8"),
        ],
        most_rounds=12,
    )
    records = SpanBench(
        Bench("records", "instants and counters", "ns", reference="instant"),
        [Entry("instant", "ours", "instant"), Entry("counter", "ours", "counter")],
    )
    update = _pair("update", "`ai.update(epoch=, step=)` on the whole tree", "update", 1 / 10)
    apart = "dftrace_ai, the arguments of each node rebuilt"
    update.entries.append(Entry(apart, "ours-apart", "update"))
    update.bench.targets.append(Target(OURS, 1 / 6, apart))
    update.bench.notes.append(
        "Rebuilt: each node has a list of its own, so that no two share arguments."
    )
    step_with = _pair("step_with", "`with node(step=i): pass`", "step_with", None)
    step_with.entries.append(Entry("empty class", "plain", "empty_class"))
    step_with.bench.targets.append(Target(OURS, 3.0, "empty class"))
    return [
        enabled_with,
        enabled_call,
        _pair("iter", "an item through `.iter` (two events)", "iter", 1 / 40),
        update,
        _pair("step", "a step: ai.update, then five spans", "training_step", None),
        _pair("start_stop", "`node.start()`, `node.stop()`", "start_stop", None),
        step_with,
        records,
        disabled_with,
        disabled_call,
        threads,
    ]
