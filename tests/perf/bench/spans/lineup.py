"""Who takes part in which span bench, and what each must reach."""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.series import Bench, Target

OURS, OFF, INERT = "dftrace_ai", "dftrace_ai, ai.disable()", "dftrace_ai, not initialised"
DFTRACER = "pydftracer"
EMPTY, NULL, WRAPPER = "empty class", "nullcontext", "pass-through wrapper"
APART = "dftrace_ai, the arguments of each node rebuilt"


@dataclass(frozen=True)
class WorkerKind:
    """How to start a contestant's process."""

    contestant: str  # its function in `contestants`
    mode: str = "on"  # handed to it
    home: str = (
        "main"  # which interpreter: "main" has dftrace_ai and torch, "peers" the other tools
    )
    env: dict[str, str] = field(default_factory=dict)  # what is added to the environment

    @property
    def package(self) -> str:
        """The name under which its version is shown."""
        return PACKAGES.get(self.contestant, self.contestant)


PACKAGES = {
    "plain": "python",
    "ours": "dftrace_ai",
    "loggers": "dftrace_ai",
    "record_function": "torch",
    "opentelemetry": "opentelemetry-sdk",
}
DFTRACER_ENV = {"DFTRACER_ENABLE": "1", "DFTRACER_INC_METADATA": "1"}
WORKERS = {
    "plain": WorkerKind("plain"),
    "ours": WorkerKind("ours"),
    "ours-apart": WorkerKind("ours", "apart"),
    "ours-off": WorkerKind("ours", "off"),
    "ours-inert": WorkerKind("ours", "inert"),
    "pydftracer": WorkerKind("pydftracer", "on", "peers", DFTRACER_ENV),
    "pydftracer-off": WorkerKind("pydftracer", "off", "peers", {"DFTRACER_ENABLE": "0"}),
    "viztracer": WorkerKind("viztracer", "on", "peers"),
    "nvtx": WorkerKind("nvtx", "on", "peers"),
    "record_function": WorkerKind("record_function", "idle"),
    "record_function-profiled": WorkerKind("record_function", "profiled"),
    "opentelemetry": WorkerKind("opentelemetry", "on", "peers"),
    "loggers-local": WorkerKind("loggers", "local"),
    "loggers-several": WorkerKind("loggers", "several"),
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


def _bench(
    id: str,
    title: str,
    reference: str,
    targets: list[Target],
    *entries: tuple[str, str, str],
    notes: tuple[str, ...] = (),
    most_rounds: int = 1000,
) -> SpanBench:
    made = Bench(id, title, "ns", targets=targets, reference=reference, notes=[*notes])
    return SpanBench(made, [Entry(*entry) for entry in entries], most_rounds)


def _peers(subject: str) -> list[tuple[str, str, str]]:
    return [
        (DFTRACER, "pydftracer", subject),
        ("viztracer", "viztracer", subject),
        ("nvtx, no profiler", "nvtx", subject),
        ("record_function, no profiler", "record_function", subject),
        ("record_function, profiled", "record_function-profiled", subject),
        ("opentelemetry", "opentelemetry", subject),
    ]


def _both(subject: str) -> list[tuple[str, str, str]]:
    return [(OURS, "ours", subject), (DFTRACER, "pydftracer", subject)]


def _switched_off(subject: str) -> list[tuple[str, str, str]]:
    return [
        (OFF, "ours-off", subject),
        (INERT, "ours-inert", subject),
        ("pydftracer, DFTRACER_ENABLE=0", "pydftracer-off", subject),
    ]


def span_benches() -> list[SpanBench]:
    """Return the benches that time spans, in the order they are shown."""
    one, eight = "dftrace_ai, 1 thread", "dftrace_ai, 8 threads"
    return [
        _bench(
            "with",
            "`with node: pass`, enabled, epoch and step set",
            OURS,
            [Target(OURS, 0.5, EMPTY), Target(OURS, 1 / 80, DFTRACER)],
            (EMPTY, "plain", "empty_class"),
            (OURS, "ours", "with"),
            ("dftrace_ai, looked up from the root", "ours", "walked_with"),
            (NULL, "plain", "nullcontext"),
            ("class taking two times", "plain", "timed_class"),
            ("@contextmanager", "plain", "contextmanager"),
            *_peers("with"),
        ),
        _bench(
            "call",
            "decorated call, enabled: overhead over the bare call",
            OURS,
            [Target(OURS, 0.7, WRAPPER), Target(OURS, 1 / 100, DFTRACER)],
            (WRAPPER, "plain", "wrapper"),
            (OURS, "ours", "call"),
            *_peers("call"),
        ),
        _bench(
            "iter",
            "an item through `.iter` (two events)",
            OURS,
            [Target(OURS, 1 / 40, DFTRACER)],
            *_both("iter"),
        ),
        _bench(
            "update",
            "`ai.update(epoch=, step=)` on the whole tree",
            OURS,
            [Target(OURS, 1 / 10, DFTRACER), Target(OURS, 1 / 6, APART)],
            *_both("update"),
            (APART, "ours-apart", "update"),
            notes=("Rebuilt: each node has a list of its own, so that no two share arguments.",),
        ),
        _bench("step", "a step: ai.update, then five spans", OURS, [], *_both("training_step")),
        _bench("start_stop", "`node.start()`, `node.stop()`", OURS, [], *_both("start_stop")),
        _bench(
            "step_with",
            "`with node(step=i): pass`",
            OURS,
            [Target(OURS, 3.0, EMPTY)],
            *_both("step_with"),
            (EMPTY, "plain", "empty_class"),
        ),
        _bench(
            "records",
            "instants and counters",
            "instant",
            [],
            ("instant", "ours", "instant"),
            ("counter", "ours", "counter"),
        ),
        _bench(
            "with_off",
            "`with node: pass`, disabled",
            OFF,
            [Target(OFF, 0.4, NULL), Target(INERT, 0.4, NULL)],
            (NULL, "plain", "nullcontext"),
            *_switched_off("with"),
        ),
        _bench(
            "call_off",
            "decorated call, disabled: overhead over the bare call",
            OFF,
            [Target(OFF, 0.4, WRAPPER), Target(INERT, 0.4, WRAPPER)],
            (WRAPPER, "plain", "wrapper"),
            *_switched_off("call"),
        ),
        _bench(
            "threads",
            "`with node: pass` on one node by 8 threads: wall time per event of all threads",
            one,
            [Target(eight, 1.5, one)],
            (one, "ours", "threads_1"),
            (eight, "ours", "threads_8"),
            ("empty class, 1 thread", "plain", "threads_1"),
            ("empty class, 8 threads", "plain", "threads_8"),
            ("pydftracer, 1 thread", "pydftracer", "threads_1"),
            ("pydftracer, 8 threads", "pydftracer", "threads_8"),
            most_rounds=12,
        ),
    ]
