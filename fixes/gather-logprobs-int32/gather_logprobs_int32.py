"""Cast token ids to int32 before they are concatenated, and no longer afterwards."""

from __future__ import annotations

import ast

from fixpack.editing import Edit, Function, Module, PlaceError, dotted, only, walk


def sampled(module: Module) -> None:
    """The plugin's replacement of ``Sampler.gather_logprobs``."""
    _cast_first(module, module.function("_hpu_gather_logprobs"))


def prompt(module: Module) -> None:
    """Its twin for the logprobs of the prompt."""
    _cast_first(module, module.method("_gather_prompt_logprobs_hpu"))


def _cast_first(module: Module, function: Function) -> None:
    """In the one concatenation that has ``token_ids`` in it.  The indices of ``gather`` stay int64, as it needs them."""
    joins = [call for call in module.calls(function, "torch.cat") if call.args and "token_ids" in map(dotted, _parts(call))]
    join = only(joins, f"{function.name}: torch.cat of token_ids")
    casts = [
        call
        for call in walk(function, ast.Call)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "to"
        and [dotted(arg) for arg in call.args] == ["torch.int32"]
    ]
    cast = only(casts, f"{function.name}: cast to torch.int32")
    assert isinstance(cast.func, ast.Attribute)
    joined, what = module.statement(function, join), cast.func.value
    if what is join:
        module.cut(join, cast)
    else:
        statement = module.statement(function, cast)
        target = dotted(what)
        stored = [dotted(node) for node in getattr(joined, "targets", [])]
        if not target or stored != [target] or not isinstance(statement, ast.Assign) or statement.value is not cast:
            raise PlaceError(f"{function.name}: what is cast to torch.int32 is not the concatenation")
        module.instead(statement, f"# {target} is int32 already.")
    for part in _parts(join):
        if not dotted(part):
            raise PlaceError(f"{function.name}: torch.cat of something else than names")
        module.append(part, ".to(torch.int32)")
    module.before(joined, '# Without int64 on the device, "long" ids read back wrong once they are joined: each is cast first.')


def _parts(call: ast.Call) -> list[ast.expr]:
    first = call.args[0]
    return first.elts if isinstance(first, ast.Tuple | ast.List) else []


EDITS: dict[str, Edit] = {
    "vllm_gaudi/patches.py": sampled,
    "vllm_gaudi/v1/worker/hpu_model_runner.py": prompt,
}
