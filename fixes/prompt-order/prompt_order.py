"""Put the prompts of a step back into the scheduler's order, right before the batch is split into prompts and decodes."""

from __future__ import annotations

import ast

from fixpack.editing import Edit, Module, PlaceError, only, walk


def runner(module: Module) -> None:
    """``HPUModelRunner``: the one place that asks for the prompts and decodes of a step."""
    call = only(module.calls(module.tree, "self._get_prompts_and_decodes"), "the call of self._get_prompts_and_decodes")
    around = [node for node in walk(module.tree, ast.FunctionDef) if any(inner is call for inner in ast.walk(node))]
    function = only(around, "the function that calls self._get_prompts_and_decodes")
    statement = module.statement(function, call)
    if len(call.args) != 1 or not isinstance(call.args[0], ast.Name):
        raise PlaceError("self._get_prompts_and_decodes: not called with the scheduler's output alone")
    output = call.args[0].id
    if not any(isinstance(node.ctx, ast.Store) and node.id == "batch_changed" for node in walk(function, ast.Name)):
        raise PlaceError(f"{function.name}: has no batch_changed, by which the sampling tensors are made anew")
    module.before(
        statement,
        f"""
        # A prompt may read prefix blocks that another one of this step still has to write: run them as they were scheduled.
        _scheduled = {{req_id: place for place, req_id in enumerate({output}.num_scheduled_tokens)}}
        _prompts = [row for row in range(self.input_batch.num_reqs) if self._is_prompt(row, {output})]
        for _place, _row in enumerate(_prompts):
            _first = min(_prompts[_place:], key=lambda row: _scheduled[self.input_batch.req_ids[row]])
            if _first != _row:
                self.input_batch.swap_states(_row, _first)
                batch_changed = True
        """,
    )


EDITS: dict[str, Edit] = {"vllm_gaudi/v1/worker/hpu_model_runner.py": runner}
