"""log_tensor_stats in a job of two ranks: who merges what, and who logs it."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from attached_models import exact_statistics
from inspect_sessions import SIX, main_log, scalars
from rank_processes import run_two_ranks

# Unlike parts: another mean and another size, and none at all in the third tensor of rank 0.
MADE = """
def part(number):
    generator = torch.Generator().manual_seed(10 * number + rank)
    rows = [[1000, 3], [700, 500], [0, 250]][number][rank]
    return torch.randn(rows, 4, generator=generator) + 5 - 10 * rank
"""

JOB = (
    MADE
    + """
import json
debug_api.initialize(base_config(), log_dir=out, default_logging_enabled=True)
say = lambda found: {stat: value.item() for stat, value in found.items()}
told = {}
for n in range(3):
    told[f"world {n}"] = say(debug_api.log_tensor_stats(f"world{n}", part(n), "activation"))
    told[f"local {n}"] = say(
        debug_api.log_tensor_stats(f"local{n}", part(n), "activation", skip_reduction=True))
    told[f"given {n}"] = say(
        debug_api.log_tensor_stats(f"given{n}", part(n), "activation", reduction_group=dist.group.WORLD))
debug_api.set_tensor_reduction_group(dist.group.WORLD)
for n in range(3):
    told[f"set {n}"] = say(debug_api.log_tensor_stats(f"set{n}", part(n), "activation"))
debug_api.end_debug()
print(json.dumps(told))
dist.destroy_process_group()
"""
)


def parts(number: int) -> list[torch.Tensor]:
    """What the ranks have."""
    made = []
    for rank in range(2):
        scope = {"torch": torch, "rank": rank}
        exec(MADE, scope)  # noqa: S102 - the very code that the ranks run
        made.append(scope["part"](number))  # type: ignore[operator]
    return made


def truth(x: torch.Tensor) -> dict[str, float]:
    exact = exact_statistics(x)
    return {stat: exact[stat] for stat in SIX}


def close(found: dict[str, float], wanted: dict[str, float]) -> bool:
    return list(found) == SIX and all(
        abs(found[stat] - value) <= 2e-6 * abs(value) for stat, value in wanted.items()
    )


def test_who_merges_and_who_logs(tmp_path: Path) -> None:
    first, second = map(json.loads, run_two_ranks(JOB, tmp_path))
    for n in range(3):
        whole = truth(torch.cat(parts(n)))
        # Without a group the last rank logs; with one, every member, and the same bits.
        assert first[f"world {n}"] == {}
        assert close(second[f"world {n}"], whole), (second[f"world {n}"], whole)
        for way in ("given", "set"):
            assert first[f"{way} {n}"] == second[f"{way} {n}"] == second[f"world {n}"]
        for told, part in zip((first, second), parts(n), strict=True):
            if part.numel():
                assert close(told[f"local {n}"], truth(part))
            else:
                assert told[f"local {n}"] == {}
    logged = [{s.name.split("_")[0] for s in scalars(tmp_path, rank)} for rank in range(2)]
    both = {"given0", "given1", "given2", "set0", "set1", "set2", "local0", "local1"}
    assert logged == [both, both | {"local2", "world0", "world1", "world2"}]
    for rank in range(2):
        warned = [line for line in main_log(tmp_path, rank) if "no reduction group" in line]
        assert len(warned) == 3
