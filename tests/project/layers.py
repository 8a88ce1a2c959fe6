"""What may import what in the package, read from its sources."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from rooms import LEAVES, NATIVE, arrows, room

# Rooms from the ground up, and what each may import beside itself and the leaves.
ROOMS: dict[str, set[str]] = {
    "trace_format": set(),
    "database": {"spare_folders"},
    "conditions": set(),
    "interpreters": set(),
    "page": set(),
    "spare_folders": set(),
    "config": {"trace_format"},
    "spools": {"_native", "trace_format", "config"},
    "run": {"_native", "interpreters", "trace_format", "config", "spools"},
    "device": {"_native", "trace_format", "config", "run"},
    "annotation": {"_native", "trace_format", "config", "run", "device"},
    "analysis": {
        *("_reader", "conditions", "database", "interpreters", "page", "spare_folders"),
        *("trace_format", "config"),
    },
    "live": {"_native", "trace_format", "config", "spools", "analysis"},
    "inspect": {"_native", "trace_format", "config", "spools", "run", "annotation"},
    "loggers": {
        *(
            "conditions",
            "database",
            "interpreters",
            "page",
            "spare_folders",
            "trace_format",
            "config",
        ),
        *("spools", "run", "annotation", "inspect"),
    },
    "integrations": {"_native", "trace_format", "config", "run", "device", "annotation"},
    "compat": {"_native", "config", "run", "annotation"},
    "notebook": {"trace_format", "config", "run", "annotation", "analysis", "integrations"},
    "testing": {"run", "analysis", "integrations"},
    "generating": {"_native", "interpreters", "trace_format"},
    "demo": {"annotation", "run", "config", "trace_format", "inspect", "face"},
    "ui": {
        *("_native", "conditions", "interpreters", "page", "spare_folders", "trace_format"),
        *("config", "spools", "analysis", "live", "loggers"),
    },
    "cli": {
        *("_native", "trace_format", "config", "spools", "run", "annotation", "analysis", "live"),
        *("conditions", "database", "interpreters", "page", "ui"),
        *("inspect", "loggers", "integrations", "compat", "demo", "face", "generating"),
    },
}
# In a room whose parts stand above each other: what each part may import of it.
INSIDE: dict[str, dict[str, set[str]]] = {
    "analysis": {
        "reading": set(),
        "executors": {"reading"},
        "thresholds": set(),
        "plug_ins": set(),
        "texts": set(),
        "track_order": set(),
        "summary": {"reading", "executors", "tracks", "where", "steps", "lines"},
        "steps": {"reading", "executors"},
        "robust_statistics": {"reading", "steps"},
        "lines": {"reading", "executors", "steps", "robust_statistics", "tracks", "texts"},
        "ranks": {
            "reading",
            "executors",
            "robust_statistics",
            "steps",
            "thresholds",
            "texts",
            "endings",
        },
        "whatif": {"reading", "ranks", "robust_statistics", "steps", "thresholds", "texts"},
        "why": {
            *(
                "reading",
                "executors",
                "lines",
                "ranks",
                "robust_statistics",
                "steps",
                "thresholds",
                "texts",
            ),
            *("endings", "plug_ins"),
        },
        "tracks": {"reading", "track_order"},
        "endings": {"reading", "texts"},
        "trace_facts": {"reading", "endings"},
        "where": {"reading"},
        "protobuf": set(),
        "otlp": {"reading", "steps", "where", "protobuf"},
        "diff": {"reading", "robust_statistics", "tracks", "steps", "why", "texts", "lines"},
        "validating": {"reading", "summary"},
        "views": {"steps"},
        "sql": {"reading", "steps", "views", "summary", "why", "lines"},
        "frames": {"sql", "views"},
        "last_to_come": {"reading", "merging", "ranks"},
        "merging": {
            *("reading", "executors", "converting", "last_to_come", "ranks", "steps", "texts"),
            "track_order",
        },
        "converting": {"reading", "merging", "sql", "lines", "protobuf", "otlp"},
        "report": {
            *("reading", "executors", "track_order", "tracks", "summary", "robust_statistics"),
            *("steps", "plug_ins"),
            *("ranks", "why", "sql", "frames", "thresholds", "texts", "lines"),
        },
        "closing": {
            *("reading", "summary", "steps", "texts", "why", "report", "endings", "thresholds"),
        },
    },
    "cli": {
        "readers": {"terminal"},
        "shared_options": {"terminal"},
        "reading": {"terminal", "readers"},
        **dict.fromkeys(("terminal", "commands", "run_folder"), {"terminal"}),
        **dict.fromkeys(("trace_server", "live_view"), {"terminal"}),
        "serving": {"terminal", "shared_options"},
        **dict.fromkeys(("long_tables", "markdown"), {"terminal"}),
        **dict.fromkeys(
            (
                *(
                    "convert",
                    "demo",
                    "diff",
                    "export",
                    "generate",
                    "index",
                    "info",
                    "inspect",
                    "merge",
                ),
                *("migrate", "recover", "report", "run", "runs", "sql", "stuck", "summary"),
                *("top", "ui", "validate"),
                *("view", "why", "ranks", "whatif", "run_end"),
            ),
            {
                *(
                    "terminal",
                    "commands",
                    "shared_options",
                    "reading",
                    "readers",
                    "summary",
                    "long_tables",
                    "markdown",
                ),
                *("live_view", "trace_server", "run_folder", "serving"),
            },
        ),
    },
    "device": {
        "clock": set(),
        "intervals": {"clock"},
        "companions": {"clock", "intervals"},
    },
    "loggers": {
        "records": set(),
        "metric_figures": set(),
        "system_metrics": {"records"},
        "routines": {"records", "metric_figures", "names", "config", "system_metrics"},
        "names": {"records"},
        "trackers": {"records", "names", "runs"},
        "config": set(),
        "registry": {"routines", "trackers"},
        "delivery": {"records", "trackers", "names"},
        "sending": {"records", "trackers", "delivery"},
        "steps": {"records", "runs", "system_metrics"},
        "run_place": {"config", "names", "trackers", "runs"},
        "endings": {"records"},
        "entry": {"registry", "trackers", "config", "delivery", "run_place", "endings"},
        "attached": {"records", "config", "delivery", "entry", "runs"},
        "pipeline": {
            *("records", "routines", "registry", "delivery", "system_metrics"),
            *("steps", "entry", "attached", "endings", "runs"),
        },
        "logger": {
            *("records", "routines", "config", "run_place", "endings", "entry", "attached"),
            "pipeline",
        },
        "runs": {"records", "metric_figures", "names"},
        "adapters": {"records", "routines", "logger", "config"},
    },
    "integrations": {
        "swapping": set(),
        "profiler": set(),
        "nodes": set(),
        "steps": {"nodes"},
        "options": {"steps"},
        "registry": {"swapping", "options"},
        "auto": {"options", "registry"},
        "launched": {"auto"},
        "callbacks": {"swapping", "nodes", "steps", "options", "auto"},
        "checkpoints": {"nodes", "steps", "options"},
        "file_operations": {"nodes", "steps", "options", "checkpoints"},
        "files": {"swapping", "options", "checkpoints", "file_operations"},
        "garbage": {"nodes", "options"},
        "torch": {"swapping", "nodes", "steps", "options", "checkpoints", "files"},
        **dict.fromkeys(
            (
                *("lightning", "transformers", "accelerate", "deepspeed", "megatron"),
                *("keras", "ray", "tensorflow"),
            ),
            {
                *("swapping", "nodes", "steps", "options", "checkpoints", "callbacks"),
                *("torch", "auto"),
            },
        ),
    },
    "inspect": {
        "errors": set(),
        "arguments": {"errors"},
        "numerics": {"errors"},
        "config": {"errors", "numerics"},
        "naming": {"config"},
        "ranks": {"errors", "config", "numerics"},
        "output": {"errors", "numerics", "ranks"},
        "nonfinite": {"numerics", "output"},
        "collecting": {"errors", "config", "numerics", "ranks", "output", "nonfinite"},
        "session": {"errors", "arguments", "config", "numerics", "ranks", "output", "collecting"},
        "attaching": {
            *("errors", "config", "naming", "numerics", "ranks", "output", "nonfinite"),
            *("collecting", "session"),
        },
        "api": {"errors", "arguments", "config", "naming", "nonfinite", "session"},
    },
}

# Longer files say in their docstring why they are "one subject".
MOST_LINES = 600
SUBJECT = "one subject"
MOST_UNTYPED = 20


def upward(package: Path) -> list[str]:
    """Imports that the rooms do not allow."""
    found = []
    for name, targets in arrows(package).items():
        here = room(name)
        if here == "face":
            continue
        allowed = set() if here in LEAVES else {here, *LEAVES, *ROOMS.get(here, set())}
        found += [f"{name} -> {t}" for t in sorted(targets) if room(t) not in allowed]
    return found


def inside(package: Path) -> list[str]:
    """Imports within a room from a lower part to a higher one."""
    found = []
    for name, targets in arrows(package).items():
        parts_of = INSIDE.get(room(name))
        if parts_of is None or name.count(".") < 2:
            continue
        here = name.split(".")[2]
        for target in sorted(targets):
            if room(target) == room(name) and target.count(".") >= 2:
                there = target.split(".")[2]
                if there != here and there not in parts_of.get(here, set()):
                    found.append(f"{name} -> {target}")
    return found


def circles(package: Path) -> list[list[str]]:
    """Sets of modules that import each other, directly or by way of others."""
    graph = arrows(package)
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        open_names = [start]
        while open_names:
            for target in graph.get(open_names.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    open_names.append(target)
        reached[start] = seen
    found = {
        tuple(sorted(b for b in reached[a] if a in reached.get(b, ())))
        for a in graph
        if a in reached[a]
    }
    return [list(names) for names in sorted(found)]


def sizes(root: Path) -> list[str]:
    """Files with too many lines that do not say in their docstring why they are one subject."""
    found = []
    for path in root.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        lines = text.count("\n")
        if lines > MOST_LINES and SUBJECT not in (ast.get_docstring(ast.parse(text)) or ""):
            found.append(f"{path.relative_to(root)}: {lines} lines")
    return found


def untyped(package: Path) -> list[str]:
    """Annotations that say nothing of what is in a mapping, as only JSON or a config needs."""
    return [
        f"{path.relative_to(package)}:{number}"
        for path in sorted(package.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"(:|->|=|\().*[dD]ict\[(str|Any), Any\]", line)
    ]


def strays(package: Path) -> list[str]:
    """Modules where only leaves may be."""
    return [
        f"{path.name} stands at the top"
        for path in package.glob("*.py")
        if path.stem not in LEAVES | NATIVE.keys() | {"__init__", "__main__"}
    ]
