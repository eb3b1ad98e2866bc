"""Seeds are kept on the CPU, and each draws its noise once, on its own device, for all rows that share it."""

from __future__ import annotations

import ast

from fixpack.editing import Edit, Module, PlaceError, dotted, only, walk


def runner(module: Module) -> None:
    """The one generator that the plugin makes for a request with a seed."""
    call = only(module.calls(module.tree, "torch.Generator"), "torch.Generator")
    device = only([keyword for keyword in call.keywords if keyword.arg == "device"], "torch.Generator: its device")
    module.replace(device.value, '"cpu"')
    module.before(
        module.statement(module.tree, call),
        "# A generator on the device crashes the worker that draws with it: see random_sample of vLLM.",
    )


def sampler(module: Module) -> None:
    """``random_sample``; the same call in ``forward_cpu`` is not meant."""
    function = module.function("random_sample")
    draws = [
        call
        for call in walk(function, ast.Call)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "exponential_"
        and [key.arg for key in call.keywords] == ["generator"]
    ]
    draw = only(draws, "random_sample: exponential_ with a generator")
    loop = only(
        [node for node in walk(function, ast.For) if any(inner is draw for inner in ast.walk(node))], "random_sample: its loop"
    )
    statement = module.statement(function, draw)
    assert isinstance(draw.func, ast.Attribute)
    row, generator = module.source(draw.func.value), dotted(draw.keywords[0].value)
    if not generator or loop.body != [statement]:
        raise PlaceError("random_sample: the loop does more than draw")
    module.before(loop, "_noise = {}")
    module.instead(
        statement,
        f"""
        # Padding repeats a request with its generator: it draws once, or the tokens would depend on the padding.
        if id({generator}) not in _noise:
            _drawn = torch.empty({row}.shape, dtype={row}.dtype, device={generator}.device)
            _noise[id({generator})] = _drawn.exponential_(generator={generator}).to({row}.device)
        {row}.copy_(_noise[id({generator})])
        """,
    )


EDITS: dict[str, Edit] = {
    "vllm_gaudi/v1/worker/hpu_model_runner.py": runner,
    "vllm/v1/sample/ops/topk_topp_sampler.py": sampler,
}
