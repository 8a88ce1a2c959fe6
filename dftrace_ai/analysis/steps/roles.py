"""What a span is in a training, by its category and name: one table for each source."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

KINETO_STEP: Final = re.compile(r"(ProfilerStep)#(\d{1,18})", re.ASCII)
"""How torch.profiler calls a step: by its number."""

Role = Literal[
    "step",
    "block",
    "transparent",
    "ignored",
    "evaluation",
    "wait",
    "item",
    "collate",
    "io",
    "data",
    "forward",
    "backward",
    "optimizer",
    "compute",
    "comm",
    "transfer",
    "checkpoint",
    "launch",
    "garbage",
    "other",
    "gpu_compute",
    "gpu_comm",
    "gpu_transfer",
]

ROLES: Final[tuple[Role, ...]] = get_args(Role)

CODE: Final[dict[Role, int]] = {role: number for number, role in enumerate(ROLES)}

NO_PART: Final[frozenset[Role]] = frozenset({"step", "block", "transparent", "ignored"})
"""Spans that only hold others: their own time belongs to whatever encloses them."""

DATA_WORK: Final[frozenset[Role]] = frozenset({"item", "collate", "io", "data"})
"""Work on the data, which is a worker's business or, outside of a wait, the loop's."""

GPU_ROLES: Final[frozenset[Role]] = frozenset({"gpu_compute", "gpu_comm", "gpu_transfer"})

Source: TypeAlias = Literal["annotated", "kineto"]
"""Who named the spans: annotations, by the vocabulary that ours, dftracer's and DLIO's share; or
torch.profiler's library Kineto."""


class Rule(NamedTuple):
    """Patterns that category and name have to match as a whole, and the role they give."""

    cat: str
    name: str
    role: Role


# The first that matches wins.
ANNOTATED: Final = (
    Rule(r"gpu\.(comm|communication)", r".*", "gpu_comm"),
    Rule(r"gpu\.device", r".*", "gpu_transfer"),
    Rule(r"gpu\.(pipeline|ai_root|dataloader|data_loader|checkpoint)", r".*", "ignored"),
    Rule(r"gpu\..*", r".*", "gpu_compute"),
    Rule(r"pipeline", r"step(\.(block|yield))?", "step"),
    Rule(r"pipeline", r"(evaluate|test)(\.(block|yield))?", "evaluation"),
    Rule(r"pipeline|ai_root", r".*", "transparent"),
    # DLIO: methods are named with their classes, and the benchmark has a category of its own.
    Rule(r"dlio_benchmark", r".*\.(block|yield)", "block"),
    Rule(r"dlio_benchmark", r".*\.iter", "wait"),
    Rule(r"dlio_benchmark", r".*\._eval", "evaluation"),
    Rule(r"dlio_benchmark", r".*", "transparent"),
    Rule(r"config", r"ConfigArguments\..*", "transparent"),
    Rule(r"data_loader", r"\w+\.(next|read|finalize|worker_init|__init__|__len__)", "transparent"),
    Rule(r"data_loader", r".*__getitem__", "item"),
    Rule(r"reader", r"\w+\.(__init__|finalize)", "transparent"),
    Rule(r"storage", r"\w+Storage\.\w+", "io"),
    Rule(r"dataloader|data_loader", r".*\.(block|yield)", "block"),
    Rule(r"dataloader|data_loader", r".*\.iter|fetch|next|.*__next__", "wait"),
    Rule(r"dataloader|data_loader", r".*\.init", "transparent"),
    Rule(r"dataloader|data_loader", r".*", "data"),
    Rule(r"data|reader", r".*\.init", "transparent"),
    Rule(r"data|reader", r".*collate.*", "collate"),
    Rule(r"data|reader", r".*io\.(open|read|write|write\.sync|close)", "io"),
    Rule(r"data|reader", r"(.*\.)?(open|close|read|get_sample)", "io"),
    Rule(r"data|reader", r"item(\..*)?|.*__getitem__|(.*\.)?read_index", "item"),
    Rule(r"data|reader", r".*", "data"),
    Rule(r"compute", r"forward.*", "forward"),
    Rule(r"compute", r"backward.*", "backward"),
    Rule(r"compute", r"step.*", "optimizer"),
    Rule(r"compute|ai_framework|framework", r".*", "compute"),
    # No collective: it has no group yet, and nothing is given to anyone.
    Rule(r"comm", r"init_process_group", "other"),
    Rule(r"comm|communication", r".*", "comm"),
    Rule(r"device", r".*", "transfer"),
    Rule(r"checkpoint", r".*", "checkpoint"),
    Rule(r"host", r"gc", "garbage"),
    Rule(r".*", r".*", "other"),
)

# Without regard to case: older files write `Kernel`, `Operator`, `Memcpy`, `Runtime`.
KINETO: Final = (
    Rule(r"user_annotation", r"ProfilerStep#\d+", "step"),
    Rule(r"python_function|gpu_user_annotation|fwdbwd|ac2g|overhead|trace", r".*", "ignored"),
    Rule(r"kernel", r".*(nccl|rccl).*", "gpu_comm"),
    Rule(r"kernel|gpu_memset|memset", r".*", "gpu_compute"),
    Rule(r"gpu_memcpy|memcpy", r".*HtoD.*", "gpu_transfer"),
    Rule(r"gpu_memcpy|memcpy|async_.*", r".*", "ignored"),
    Rule(r".*", r"enumerate\(DataLoader\)#.*__next__", "wait"),
    Rule(r".*", r"Optimizer\.step#.*", "optimizer"),
    Rule(r".*", r"Optimizer\.zero_grad#.*", "compute"),
    Rule(r".*", r"autograd::engine::evaluate_function.*", "backward"),
    Rule(r".*", r"(c10d|nccl|gloo|rccl).*|record_param_comms", "comm"),
    Rule(r"user_annotation", r".*forward.*", "forward"),
    Rule(r"user_annotation", r".*backward.*", "backward"),
    Rule(r"user_annotation", r".*optimizer.*", "optimizer"),
    Rule(r"user_annotation", r".*(eval|valid|test).*", "evaluation"),
    Rule(r"user_annotation", r".*(checkpoint|save).*", "checkpoint"),
    Rule(r"cuda_runtime|cuda_driver|runtime", r".*", "launch"),
    Rule(r"cpu_op|operator", r".*", "compute"),
    Rule(r".*", r".*", "other"),
)

KINETO_CATEGORIES: Final = frozenset({"cpu_op", "user_annotation", "kernel", "operator"})
"""Categories, in small letters, by which a file shows that Kineto has written it."""


@cache
def _compiled(source: Source) -> tuple[tuple[re.Pattern[str], re.Pattern[str], Role], ...]:
    table, flags = (KINETO, re.IGNORECASE) if source == "kineto" else (ANNOTATED, re.RegexFlag(0))
    flags |= re.DOTALL
    return tuple((re.compile(c, flags), re.compile(n, flags), role) for c, n, role in table)


# Files of many ranks have the same names; of others there may be any number.
@lru_cache(4096)
def role_of(cat: str, name: str, source: Source = "annotated") -> Role:
    """Return what a span is in a training."""
    for cat_pattern, name_pattern, role in _compiled(source):
        if cat_pattern.fullmatch(cat) and name_pattern.fullmatch(name):
            return role
    return "other"
