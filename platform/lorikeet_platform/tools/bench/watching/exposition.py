"""The text that servers show their metrics in, as far as it is wanted: a scrape may have ten thousand lines."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Labels = Mapping[str, str]


@dataclass(slots=True)
class Samples:
    """Values by name, each with its labels."""

    by_name: dict[str, list[tuple[Labels, float]]] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.by_name

    def total(self, name: str, **labels: str) -> float:
        """The sum over all samples of that name and those labels; 0 without any."""
        found = self.by_name.get(name, ())
        return sum(value for has, value in found if all(has.get(key) == word for key, word in labels.items()))

    def average(self, name: str) -> float:
        """Over all samples of that name: of shares, which do not add up; 0 without any."""
        values = [value for _, value in self.by_name.get(name, ())]
        return sum(values) / len(values) if values else 0.0

    def not_finite(self) -> str | None:
        """The name of a sample that is no number; None when all are."""
        return next((name for name, has in self.by_name.items() if not all(math.isfinite(v) for _, v in has)), None)

    def by_label(self, name: str, label: str) -> dict[str, float]:
        sums: dict[str, float] = {}
        for has, value in self.by_name.get(name, ()):
            sums[has.get(label, "")] = sums.get(has.get(label, ""), 0.0) + value
        return sums


def read_samples(text: str, names: frozenset[str]) -> Samples:
    """The samples of `names`; what is no sample, or another's, is passed over."""
    samples = Samples()
    for line in text.splitlines():
        if line.startswith("#") or line.partition("{")[0].partition(" ")[0] not in names:
            continue
        match = _SAMPLE.match(line)
        if match is None:
            continue
        name, labels, value = match.groups()
        try:
            number = float(value)
        except ValueError:
            continue
        samples.by_name.setdefault(name, []).append((dict(_LABEL.findall(labels or "")), number))
    return samples
