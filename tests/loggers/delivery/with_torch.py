"""The programs that need torch, which is imported once for all of them."""

from __future__ import annotations

from sampling import times

from .cases import Case

# Two hundred epochs differ from twelve in nothing but the time.
EPOCHS, BATCHES = times(200, 0.06), 4
THREADS, CALLS = 4, 500

NAMES = (
    *("logs_bad_data", "logs_everything_bad", "logs_bad_by_name"),
    *("flushes", "asks_for_the_tracker"),
    *("forks_within_a_call", "forks_beside_a_hung_call"),
)
CASES = [
    Case("loads_data", "loads_data", {"epochs": EPOCHS}, torch=True),
    Case("is_killed_beside_workers", "is_killed_beside_workers"),
    Case("forks_in_all_ways", "forks_in_all_ways"),
    *(Case(name, name) for name in NAMES),
    Case("logs_from_everywhere", "logs_from_everywhere", {"threads": THREADS, "calls": CALLS}),
    *(Case(f"sync-{how}", "waits_for_each", {"how": how}) for how in (None, "hang")),
]
