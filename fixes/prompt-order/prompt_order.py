"""Put the prompts of a step back into the scheduler's order before the batch is split, and let rows change places whole."""

from __future__ import annotations

import ast

from fixpack.editing import Edit, Module, PlaceError, dotted, only, walk


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


def batch(module: Module) -> None:
    """``swap_states``: rows of a tensor are views, and exchanging views writes one row over the other before it is read."""
    function = module.method("swap_states")
    mask = "self.allowed_token_ids_mask_cpu_tensor"
    exchanges = [
        (statement, rows)
        for statement in walk(function, ast.Assign)
        if (rows := _rows(statement.value)) and [dotted(row.value) for row in rows] == [mask, mask]
    ]
    only([statement for statement, _ in exchanges], f"{function.name}: the exchange of two rows of {mask}")
    statement, rows = exchanges[0]
    for row in rows:
        module.append(row, ".clone()")
    module.before(statement, "# Rows of a tensor are views: without a copy the first is written over before it is read.")


def _rows(node: ast.expr) -> list[ast.Subscript]:
    return [part for part in node.elts if isinstance(part, ast.Subscript)] if isinstance(node, ast.Tuple) else []


EDITS: dict[str, Edit] = {
    "vllm_gaudi/v1/worker/hpu_model_runner.py": runner,
    "vllm_gaudi/v1/worker/hpu_input_batch.py": batch,
}
