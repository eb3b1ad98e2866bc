"""An id that can not be decoded gives an empty text, one by one, instead of an exception for all."""

from __future__ import annotations

import ast

from fixpack.editing import Edit, Module, PlaceError, dotted, only


def detokenizer(module: Module) -> None:
    """``convert_ids_list_to_tokens``: the decoding in both of its loops, and the look at the raw vocabulary before the second."""
    function = module.function("convert_ids_list_to_tokens")
    decodes = module.calls(function, "tokenizer.decode")
    if len(decodes) != 2:
        raise PlaceError(f"{function.name}: tokenizer.decode found {len(decodes)} times, expected twice")
    for call in decodes:
        given = call.args[0] if len(call.args) == 1 and not call.keywords else None
        if not isinstance(given, ast.List) or len(given.elts) != 1 or not dotted(given.elts[0]):
            raise PlaceError(f"{function.name}: tokenizer.decode is not called with one id")
        module.replace(call, f"_decoded_or_nothing(tokenizer, {module.source(given.elts[0])})")
    raw = only(module.calls(function, "tokenizer.convert_ids_to_tokens"), f"{function.name}: tokenizer.convert_ids_to_tokens")
    if len(raw.args) != 1 or raw.keywords or not dotted(raw.args[0]):
        raise PlaceError(f"{function.name}: tokenizer.convert_ids_to_tokens is not called with the ids alone")
    module.replace(raw, f"[_raw_or_nothing(tokenizer, token_id) for token_id in {module.source(raw.args[0])}]")
    module.before(
        function,
        '''
        def _decoded_or_nothing(tokenizer, token_id):
            """The text of one id; nothing for an id outside the vocabulary, or one that is no text by itself."""
            try:
                return tokenizer.decode([token_id]) if token_id >= 0 else ""
            except Exception:
                return ""


        def _raw_or_nothing(tokenizer, token_id):
            """The vocabulary's own piece for one id, or nothing."""
            try:
                return tokenizer.convert_ids_to_tokens([token_id])[0] or ""
            except Exception:
                return ""
        ''',
        gap=2,
    )


EDITS: dict[str, Edit] = {"vllm/tokenizers/detokenizer_utils.py": detokenizer}
