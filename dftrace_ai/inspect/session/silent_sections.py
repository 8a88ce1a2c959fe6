"""Sections of the config that produced nothing, and why: told once, when the session ends."""

from __future__ import annotations

import logging
from difflib import get_close_matches
from typing import TYPE_CHECKING

from dftrace_ai.inspect.config.layers import describe_layers, layer_number
from dftrace_ai.inspect.config.names import listed
from dftrace_ai.wording import ToldOnce

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from dftrace_ai.inspect.config import InspectConfig, LayerInfo, Observe, Schedule, Section

NEAR_MOST = 3
BITS = 64
"""Of so many sections ranks tell each other whether they have layers."""


class SilentSections:
    """What each section did, as far as it has to be known to tell of those that did nothing."""

    def __init__(self, config: InspectConfig, iteration: int) -> None:
        self._config = config
        self._layers: dict[str, LayerInfo] = {}
        self._section_of: dict[str, str] = {}
        self.bits = 0
        """Which sections have attached layers on this rank, a bit for each."""
        self._told = ToldOnce()
        self._passed: list[tuple[int, int]] = []
        self._began = iteration
        self.given: dict[tuple[str, str], Section | None] = {}
        """The section of each layer and tensor of explicit calls."""
        self.logged: set[str] = set()
        """The layers of explicit calls that were due."""
        self.shown: set[str] = set()
        """The layers of which statistics were logged."""
        self.ran: set[str] = set()
        """The layers that ran with something to do."""
        self.forwards = 0
        """The most that a layer ran with something to do within a step."""
        self.fp8_seen = False
        self.delayed_seen = False
        """Whether a layer ran under delayed scaling."""
        self.stepped = False

    def attached(self, layers: Mapping[str, LayerInfo], sections: Mapping[str, str]) -> None:
        """Take in the layers of a model, and the sections of those that have one."""
        self._layers |= layers
        self._section_of |= sections
        found = set(self._section_of.values())
        names = list(self._config.sections)[:BITS]
        self.bits = sum(1 << index for index, name in enumerate(names) if name in found)

    def told_of(self, section: str) -> None:
        """Take in that it was told already that a section selects nothing."""
        self._told.first(section)

    def jumps(self, before: int, iteration: int) -> None:
        """Take in that the iterations go on somewhere else."""
        self._passed.append((self._began, before))
        self._began = iteration

    def tell(
        self,
        say: Callable[[str, int], None],
        iteration: int,
        *,
        rank: int,
        alone: bool,
        anywhere: int | None,
    ) -> None:
        """Tell of each section that produced nothing."""
        # Of several ranks, the first one warns of what all of them see alike. Where another rank
        # has the layers, it is no warning at all. `anywhere` tells which sections have layers on
        # any rank, as `bits`; None if it is not known.
        spans = [*self._passed, (self._began, iteration)]
        for index, section in enumerate(self._config.sections.values()):
            mine = [name for name, of in self._section_of.items() if of == section.name]
            calls = [key for key, of in self.given.items() if of is section]
            logged = any(layer in self.logged for layer, _ in calls)
            if logged or self._produced(section, mine):
                continue
            level = logging.WARNING
            begun = f"Section {section.name} produced nothing: "
            if mine or calls:
                tensors = list(dict.fromkeys(tensor for _, tensor in calls))
                why = self._why(section, mine, tensors, spans)
                if why is None:
                    continue
                if why.startswith(_NEVER_DUE) and rank:
                    level = logging.INFO
            elif not self._told.first(section.name):
                continue
            else:
                why = self._nothing_selected(section)
                if anywhere is not None and index < BITS and anywhere >> index & 1:
                    begun = f"Section {section.name} has its layers on other ranks: "
                    level = logging.INFO
                elif rank or not alone:
                    level = logging.INFO if rank else level
                    why += "" if anywhere is not None else " Other ranks may have such layers."
            say(begun + why, level)

        if self.shown and not self.stepped and self.forwards > 1:
            say(
                f"step() was never called: what layers showed in up to {self.forwards} forwards "
                f"was logged as one iteration, {iteration}.",
                logging.WARNING,
            )

    def _produced(self, section: Section, mine: list[str]) -> bool:
        if section.custom:
            # The feature itself decides whether there is anything to do.
            return bool(mine)
        changes = _changes(section) if self.fp8_seen else "FakeQuant" in section.features
        changed = changes and not self.ran.isdisjoint(mine)
        return changed or not self.shown.isdisjoint(mine)

    def _why(
        self, section: Section, mine: list[str], tensors: list[str], spans: list[tuple[int, int]]
    ) -> str | None:
        """Say why a section that selects layers did nothing, None where that is as it should be."""
        if not section.features:
            return self._why_no_call(section, mine, tensors, spans)
        schedules = [one.schedule for one in section.observe]
        due = any(_was_due(schedule, spans) for schedule in schedules)
        layers = f"its layers{_such_as(mine)}"
        if schedules and not due and not _changes(section):
            return self._never_due(schedules, spans)
        if not schedules and not self.fp8_seen and "FakeQuant" not in section.features:
            if "PerTensorScaling" in section.features:
                return "PerTensorScaling needs `attach(fp8=...)` or `fp8_autocast`; FP8 was off."
            return None  # what takes layers out of FP8 has nothing to do without it
        if self.ran.isdisjoint(mine):
            return (
                f"{layers} never ran while something was due; a call such as "
                "F.linear(x, layer.weight) goes past the module."
            )
        observed = section.observe
        if not self.delayed_seen and observed and all(map(_of_delayed_scaling, observed)):
            return f"{layers} ran, and never under the recipe 'delayed' that its statistics need."
        wanted = listed(dict.fromkeys(one.tensor for one in observed))
        return (
            f"{layers} ran, and none of {wanted} was seen of them; there may have been no "
            "backward, or the modules are in eval mode and `attach` was not given observe_eval."
        )

    def _why_no_call(
        self, section: Section, mine: list[str], tensors: list[str], spans: list[tuple[int, int]]
    ) -> str:
        wanted = section.base_observes()
        if not tensors:
            return (
                f"LogTensorStats at its top is fed by calls of log_tensor_stats alone, and there "
                f"was none for its layers{_such_as(mine)}; for those of `attach` it has to stand "
                "under transformer_engine."
            )
        names = [one.tensor for one in wanted]
        if not set(names) & set(tensors):
            return (
                f"the calls were for the tensors {listed(tensors)}, and it lists {listed(names)}."
            )
        return self._never_due([one.schedule for one in wanted], spans)

    def _never_due(self, schedules: list[Schedule], spans: list[tuple[int, int]]) -> str:
        rules = " or ".join(dict.fromkeys(one.rule for one in schedules))
        first, last = spans[0][0], spans[-1][1]
        following = [one.next_due(last) for one in schedules]
        least = min((one for one in following if one is not None), default=None)
        then = "it will not be any more" if least is None else f"the next would be {least}"
        never = "" if self.stepped else "; step() was never called"
        return f"{_NEVER_DUE} from {first} to {last} ({rules}); {then}{never}."

    def _nothing_selected(self, section: Section) -> str:
        names = [*self._layers, *dict.fromkeys(layer for layer, _ in self.given)]
        if not names:
            return "no model was attached, and there was no call of log_tensor_stats."
        which = f"none of the {len(names)} layers is one {describe_layers(section.layers)}"
        layers, found = section.layers, ""
        keys = layers.model_fields_set
        if "exact_layer_names" in keys:
            found = near(layers.exact_layer_names, names)
        elif "layer_name_regex_pattern" in keys:
            found = near([layers.layer_name_regex_pattern], names)
        else:
            if layers.layer_types:
                parts = {part for name in names for part in name.split(".") if not part.isdigit()}
                parts |= {one.class_name for one in self._layers.values() if one.class_name}
                found = near(layers.layer_types, sorted(parts))
            if not found and "layer_numbers" in keys:
                found = _numbers_of(names)
        return f"{which}; {found or 'there are ' + listed(names[:NEAR_MOST])}."


_NEVER_DUE = "it was not due in the iterations"


def near(entries: Iterable[str], names: Collection[str]) -> str:
    """Return the names that are the nearest to entries, in words; nothing where none is near."""
    by_case = {name.lower(): name for name in names}
    found: dict[str, None] = {}
    for entry in entries:
        close = get_close_matches(entry.lower(), by_case, NEAR_MOST)
        found |= dict.fromkeys(by_case[one] for one in close)
    return f"near are {listed(list(found)[:NEAR_MOST])}" if found else ""


def _numbers_of(names: Iterable[str]) -> str:
    numbers = sorted({one for one in map(layer_number, names) if one is not None})
    if not numbers:
        return "no layer has a number in its name"
    return f"the numbers of layers go from {numbers[0]} to {numbers[-1]}"


def _such_as(names: list[str]) -> str:
    more = f" and {len(names) - NEAR_MOST} more" if len(names) > NEAR_MOST else ""
    return f" ({', '.join(names[:NEAR_MOST])}{more})" if names else ""


def _was_due(schedule: Schedule, spans: Iterable[tuple[int, int]]) -> bool:
    for first, last in spans:
        due = schedule.next_due(first - 1)
        if due is not None and due <= last:
            return True
    return False


def _changes(section: Section) -> bool:
    """Whether a section has features that change GEMMs."""
    return any(not name.startswith("Log") for name in section.features)


def _of_delayed_scaling(observe: Observe) -> bool:
    return all(stat.startswith("fp8_delayed_scaling_") for stat in observe.stats)
