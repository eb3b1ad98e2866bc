"""How far it is: a bar on a terminal, plain lines in a log, objects for programs."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from types import TracebackType
from typing import TextIO


class Progress:
    """Counts bytes, from any thread, and says now and then how far it is; of nothing at all it says nothing."""

    def __init__(self, what: str, total: int, *, as_json: bool = False, stream: TextIO | None = None) -> None:
        self._what, self._total, self._json = what, total, as_json
        self._stream = stream or sys.stderr
        self._bar = self._stream.isatty() and not as_json
        self._every = 0.2 if self._bar else 10.0
        self._lock = threading.Lock()
        self._done = 0
        self._said = False
        self._begin = self._last = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None and self._total:
            self._say(time.monotonic())
        if self._bar and self._said:
            print(file=self._stream)

    def add(self, count: int) -> None:
        """So many bytes more are done."""
        with self._lock:
            self._done += count
            now = time.monotonic()
            if now - self._last >= self._every:
                self._last = now
                self._say(now)

    def _say(self, now: float) -> None:
        self._said = True
        rate = self._done / max(now - self._begin, 1e-6)
        left = (self._total - self._done) / max(rate, 1.0)
        if self._json:
            data = {
                "doing": self._what,
                "bytes": self._done,
                "of": self._total,
                "bytes_per_s": round(rate),
                "seconds_left": round(left),
            }
            print(json.dumps(data), file=self._stream, flush=True)
            return
        share = self._done / max(self._total, 1)
        size = f"{self._done / 1e9:,.1f} of {self._total / 1e9:,.1f} GB"
        text = f"{self._what} {share:6.1%}  {size}  {rate / 1e9:.2f} GB/s  {_span(left)} left"
        if self._bar:
            columns = shutil.get_terminal_size().columns - 1
            width = min(24, columns - len(text) - 3)
            filled = int(share * width)
            bar = f"[{'#' * filled}{'.' * (width - filled)}] " if width >= 4 else ""
            print(f"\r\x1b[K{(bar + text)[:columns]}", end="", file=self._stream, flush=True)
        else:
            print(text, file=self._stream, flush=True)


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
