"""An id that can not be decoded gives an empty text, one by one, instead of an exception for all."""

from __future__ import annotations

import ast

from fixpack.editing import Edit, Module, PlaceError, dotted, only, walk


def detokenizer(module: Module) -> None:
    """``convert_ids_list_to_tokens``: what both of its loops make of an id, and the look at the raw pieces before the second."""
    function = module.function("convert_ids_list_to_tokens")
    decodes = module.calls(function, "tokenizer.decode")
    if len(decodes) != 2:
        raise PlaceError(f"{function.name}: tokenizer.decode found {len(decodes)} times, expected twice")
    for call in decodes:
        given = call.args[0] if len(call.args) == 1 and not call.keywords else None
        if not isinstance(given, ast.List) or len(given.elts) != 1 or not isinstance(given.elts[0], ast.Name):
            raise PlaceError(f"{function.name}: tokenizer.decode is not called with one id")
        loops = [loop for loop in walk(function, ast.ListComp) if any(inner is call for inner in ast.walk(loop.elt))]
        made = only(loops, f"{function.name}: the loop around tokenizer.decode").elt
        module.replace(made, f"_text_or_nothing({given.elts[0].id}, lambda: {module.source(made)})")
    raw = only(module.calls(function, "tokenizer.convert_ids_to_tokens"), f"{function.name}: tokenizer.convert_ids_to_tokens")
    if len(raw.args) != 1 or raw.keywords or not dotted(raw.args[0]):
        raise PlaceError(f"{function.name}: tokenizer.convert_ids_to_tokens is not called with the ids alone")
    one = "lambda: tokenizer.convert_ids_to_tokens([token_id])[0]"
    module.replace(raw, f"[_text_or_nothing(token_id, {one}) for token_id in {module.source(raw.args[0])}]")
    module.before(
        function,
        '''
        def _text_or_nothing(token_id, made):
            """What is made of one id; nothing for an id outside the vocabulary, or one that is no text by itself."""
            try:
                return made() if token_id >= 0 else ""
            except Exception:
                return ""
        ''',
        gap=2,
    )


def split_characters(module: Module) -> None:
    """``_correct_decoded_token``, which decodes an id together with those before it: there may be a wrong one among them."""
    function = module.method("_correct_decoded_token")
    decodes = module.calls(function, "self.tokenizer.decode")
    if not decodes:
        raise PlaceError(f"{function.name}: self.tokenizer.decode found 0 times, expected at least once")
    for call in decodes:
        if len(call.args) != 1 or call.keywords:
            raise PlaceError(f"{function.name}: self.tokenizer.decode is not called with ids alone")
        module.replace(call, f"_decoded_or_nothing(self.tokenizer, {module.source(call.args[0])})")
    owner = only([node for node in walk(module.tree, ast.ClassDef) if function in node.body], f"the class of {function.name}")
    module.before(
        owner,
        '''
        def _decoded_or_nothing(tokenizer, token_ids):
            """The text of ids; nothing if one of them is outside the vocabulary."""
            try:
                return tokenizer.decode(token_ids) if min(token_ids) >= 0 else ""
            except Exception:
                return ""
        ''',
        gap=2,
    )


EDITS: dict[str, Edit] = {
    "vllm/tokenizers/detokenizer_utils.py": detokenizer,
    "vllm/v1/engine/logprobs.py": split_characters,
}
