"""A worker that nobody waits for ends with its exception, instead of going on to serve."""

from __future__ import annotations

import ast

from fixpack.editing import Edit, Module, PlaceError, only, walk


def executor(module: Module) -> None:
    """The handler of a worker's exceptions that replies only if this rank's output is waited for."""
    handlers = [
        (handler, choice)
        for handler in walk(module.tree, ast.ExceptHandler)
        if handler.name
        for choice in handler.body
        if isinstance(choice, ast.If)
        and any(
            [getattr(argument, "id", "") for argument in call.args] == [handler.name]
            for call in module.calls(choice, "self.handle_output")
        )
    ]
    only([handler for handler, _ in handlers], "the handler that replies with self.handle_output")
    handler, choice = handlers[0]
    if choice.orelse or handler.body[-1] is not choice:
        raise PlaceError(f"line {choice.lineno}: the handler does more than reply")
    module.after(
        choice,
        """
        else:
            # Nobody reads this rank's reply.  Its exception ends the process, and the executor then ends the engine.
            raise
        """,
    )


EDITS: dict[str, Edit] = {"vllm/v1/executor/multiproc_executor.py": executor}
