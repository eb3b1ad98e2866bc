"""Measuring processes: CPU seconds, medians, and a line for each figure beside its budget."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Line:
    """One result: a ratio or a size, and the budget it is held against."""

    title: str
    value: float
    budget: float
    unit: str
    detail: str

    @property
    def held(self) -> bool:
        """Whether the budget is held."""
        return self.value <= self.budget

    def __str__(self) -> str:
        mark = "held" if self.held else "OVER"
        return f"{self.title:<58} {self.value:>8.3f} {self.unit:<11} budget {self.budget:<6.3g} {mark:<5} {self.detail}"


def surroundings() -> dict[str, str]:
    """The environment for measured processes, as a user's is: Python keeps compiled files, MkDocs shows no banner."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "NO_MKDOCS_2_WARNING": "1"}


def cpu_seconds(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> float:
    """User and system time of a process and its children.  Raises ``RuntimeError`` with its output if it fails."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**surroundings(), **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{output.decode(errors='replace')[-2000:]}")
    return usage.ru_utime + usage.ru_stime


def in_turns(runs: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median of each of several runs, taken in turns so that a busy moment of the machine hits all alike."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            taken[name].append(run())
    return {name: statistics.median(values) for name, values in taken.items()}


def say(text: str) -> None:
    """Say what is going on, at once."""
    print(text, file=sys.stderr, flush=True)
