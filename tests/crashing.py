"""Runs that end at a chosen step that touches the disk: killed, or with an error."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any


def killed() -> None:
    """End as ``kill -9`` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def interrupted(run: Callable[[], int], at: int, action: Callable[[], None], steps: Sequence[str]) -> int | None:
    """Run in a process of its own, with something happening at the given call of one of the functions of ``os``.

    Returns the exit code, negative for a signal; None if the run ended before that step.
    """
    child = os.fork()
    if not child:
        code = 99
        try:
            sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - to the end of the process
            count = 0

            def counted(real: Callable[..., Any]) -> Callable[..., Any]:
                def step(*args: Any, **kwargs: Any) -> Any:
                    nonlocal count
                    count += 1
                    if count == at:
                        action()
                    return real(*args, **kwargs)

                return step

            for name in steps:
                setattr(os, name, counted(getattr(os, name)))
            code = run()
            if count < at:
                code = 100
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return None if code == 100 else code
