"""Samples, medians, ratios with their intervals, and targets judged against them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

Verdict = Literal["met", "missed", "unmeasured"]


@dataclass(frozen=True)
class Interval:
    """A median with its 95 % confidence interval."""

    median: float
    low: float
    high: float


def interval(samples: list[float]) -> Interval:
    """Return the median of one sample or more with its distribution-free interval, from order statistics.

    The ranks are n/2 -+ 0.98 sqrt(n) (Conover, Practical Nonparametric Statistics, 3.2), which
    needs no assumption about how a noisy machine scatters its timings.
    """
    ordered = sorted(samples)
    n = len(ordered)
    reach = 0.98 * math.sqrt(n)
    low = max(0, math.floor(n / 2 - reach) - 1)
    high = min(n - 1, math.ceil(n / 2 + reach))
    return Interval(median(ordered), ordered[low], ordered[high])


@dataclass
class Series:
    """What one contestant did in one bench: a sample a round, or the reason why there is none."""

    contestant: str
    samples: list[float] = field(default_factory=list)
    cpu_samples: list[float] = field(default_factory=list)
    missing: str = ""

    @property
    def there(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.samples)


@dataclass(frozen=True)
class Target:
    """What a bench must reach."""

    subject: str  # whose figure is judged
    limit: float
    against: str = ""  # whose figure it is divided by, round by round; empty for the figure itself
    at_least: bool = False  # the bound is a lower one
    # A contestant that does the same as `against`; the target is met when the subject's interval
    # reaches down to 1, or to the top of that contestant's interval.
    noise_of: str = ""


@dataclass(frozen=True)
class Judged:
    """A target with what was measured."""

    target: Target
    value: Interval | None
    verdict: Verdict
    wanted: str
    clear: bool


@dataclass
class Bench:
    """One thing that is measured, with everyone who took part."""

    id: str  # its name on the command line and in the JSON
    title: str  # its name in the tables
    unit: str  # of the samples
    series: list[Series] = field(default_factory=list)  # one per contestant, in the order shown
    targets: list[Target] = field(default_factory=list)  # what is to be reached
    reference: str = ""  # contestant by whose figure the others' are divided in the table
    notes: list[str] = field(default_factory=list)  # what is needed to read the figures rightly

    def fill(
        self,
        samples: dict[str, list[float]],
        labels: Iterable[str] | dict[str, str],
        missing: str,
        factor: float = 1.0,
    ) -> Bench:
        """Add a series for each label, with the samples under it, or under its key."""
        named = labels if isinstance(labels, dict) else {label: label for label in labels}
        for key, label in named.items():
            taken = [factor * sample for sample in samples.get(key, [])]
            self.series.append(Series(label, taken, missing=missing))
        return self

    def take(self, contestant: str, answer: dict[str, Any], key: str, cpu: str = "") -> None:
        """Take what a process has answered for one round, or why it has not."""
        series = self.find(contestant)
        if "missing" in answer:
            series.missing = answer["missing"]
            return
        series.samples.append(float(answer[key]))
        if cpu:
            series.cpu_samples.append(float(answer[cpu]))

    def find(self, contestant: str) -> Series:
        """Return a contestant's series; an empty one where it took no part."""
        for series in self.series:
            if series.contestant == contestant:
                return series
        return Series(contestant, missing="not in this bench")

    def ratio(self, subject: str, against: str, *, cpu: bool = False) -> Interval | None:
        """Return the median of the per-round ratios, or None where one of the two is missing."""
        both = self.find(subject), self.find(against)
        pairs = zip(*(one.cpu_samples if cpu else one.samples for one in both), strict=False)
        ratios = [ours / theirs for ours, theirs in pairs if theirs > 0]
        return interval(ratios) if ratios else None

    def cpu_note(self, subject: str, against: str) -> list[str]:
        """Return the ratio of processor times, which other work disturbs less than the clock's."""
        found = self.ratio(subject, against, cpu=True)
        if found is None:
            return []
        ratio = f"{found.median:.3f} [{found.low:.3f} .. {found.high:.3f}]"
        return [f"Processor time, all threads, {subject}: {ratio} x {against}"]

    def judged(self) -> list[Judged]:
        """Return every target with its verdict."""
        return [self._judge(target) for target in self.targets]

    def _judge(self, target: Target) -> Judged:
        if target.noise_of:
            return self._judge_noise(target)
        sign = ">=" if target.at_least else "<="
        if target.against:
            value = self.ratio(target.subject, target.against)
            wanted = f"{sign} {short(target.limit)} x {target.against}"
        else:
            samples = self.find(target.subject).samples
            value = interval(samples) if samples else None
            wanted = f"{sign} {short(target.limit)} {self.unit}"
        if value is None:
            return Judged(target, None, "unmeasured", wanted, clear=False)
        if target.at_least:
            met, clear = value.median >= target.limit, value.low >= target.limit
        else:
            met, clear = value.median <= target.limit, value.high <= target.limit
        return Judged(target, value, "met" if met else "missed", wanted, clear)

    def _judge_noise(self, target: Target) -> Judged:
        value = self.ratio(target.subject, target.against)
        noise = self.ratio(target.noise_of, target.against)
        if value is None or noise is None:
            return Judged(target, None, "unmeasured", "within noise", clear=False)
        bound = max(1.0, noise.high)
        wanted = f"interval reaches down to {bound:.4f} (noise of {target.noise_of})"
        met = value.low <= bound
        return Judged(target, value, "met" if met else "missed", wanted, value.median <= bound)


def short(value: float) -> str:
    """Return a number in the form people write it: 1/80 for small ratios, 5M for millions."""
    if 0 < value < 0.2:
        return f"1/{round(1 / value)}"
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value:g}"
