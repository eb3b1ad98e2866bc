"""What a version of an engine accepts, read from its wheel without importing any of it.

The functions that build the engine's argument parser are followed (:mod:`schema.catalogs.following`).  What can not be followed
although it may add options is an error, never a guess.

Three layouts are known, each from the source of the release named:

- vLLM 0.30.0: ``make_arg_parser`` in ``vllm/entrypoints/launchers/cli_args.py`` adds ``**get_kwargs(Config)["field"]``, which
  vLLM works out from the field's annotation (``vllm/engine/arg_utils.py``).
- SGLang 0.5.9: ``ServerArgs.add_cli_args`` in ``sglang/srt/server_args.py`` is a list of ``add_argument``.
- SGLang 0.5.17: the same function adds what fields of ``ServerArgs`` say in ``Annotated``
  (``sglang/srt/arg_groups/arg_utils.py``), and ``sglang serve`` takes words of its own away before (``sglang/cli/serve.py``).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from schema.catalogs.following import PARSER, UNKNOWN, Class, Follower, Frame, Function, Kwargs, Lambda, Outside
from schema.catalogs.tree import MAX_DEPTH, Import, Module, Tree, UnreadableError

_FLAG = re.compile(r"--?[A-Za-z0-9][\w.-]*")

Entry: TypeAlias = "dict[str, Any]"
"""One option: ``value`` (none, one, many, any, optional), ``choices`` if they are declared as such, ``folded`` if case does not
matter in them and a dash is an underscore."""


@dataclass
class Facts:
    """What one version accepts."""

    engine: str
    version: str
    source: str
    options: dict[str, Entry]
    entries: int
    """How many options there are, not counting other spellings and ``--no-`` twins."""
    tool_parsers: list[str]
    reasoning_parsers: list[str]


def read(path: Path) -> Facts:
    """Read a wheel, or the folder one was unpacked into.  Raises :class:`UnreadableError`."""
    tree = Tree(path)
    try:
        if (module := tree.module("vllm.entrypoints.launchers.cli_args")) is not None:
            parser = _Options(tree)
            parser.run(module, "make_arg_parser")
            tools = parser.registry("vllm.tool_parsers", "_TOOL_PARSERS_TO_REGISTER")
            reasoning = parser.registry("vllm.reasoning", "_REASONING_PARSERS_TO_REGISTER")
            engine = "vllm"
        elif (module := tree.module("sglang.srt.server_args")) is not None:
            parser = _Options(tree)
            parser.run(module, "ServerArgs", "add_cli_args")
            parser.words_of_serve()
            tools = parser.registry("sglang.srt.function_call.function_call_parser", "FunctionCallParser", "ToolCallParserEnum")
            reasoning = parser.registry("sglang.srt.parser.reasoning_parser", "ReasoningParser", "DetectorMap")
            engine = "sglang"
        else:
            raise UnreadableError(
                "is no vLLM or SGLang of a known layout: "
                "there is neither vllm/entrypoints/launchers/cli_args.py nor sglang/srt/server_args.py"
            )
    except RecursionError:
        raise UnreadableError("is nested too deeply to be read") from None
    if not parser.options:
        raise UnreadableError(f"{module.path} adds no options")
    return Facts(engine, tree.version, tree.name, parser.options, parser.entries, tools, reasoning)


# --- options ---------------------------------------------------------------------------------------------------------

_BOOLEAN = "argparse.BooleanOptionalAction"
_KINDS = {None: "one", "?": "optional", "*": "any", "+": "many", 0: "none"}
_NO_VALUE = ("store_true", "store_false", "store_const", "append_const", "count", "help", "version")
_KEYWORDS = ("action", "nargs", "choices", "type")
_FOLDS = ".lower().replace('-', '_')"


class _Options(Follower):
    """Keeps the options that are added."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.options: dict[str, Entry] = {}
        self.entries = 0

    def words_of_serve(self) -> None:
        """The options that ``sglang serve`` compares words with and takes away before the parser sees them."""
        module = self._tree.module("sglang.cli.serve")
        functions = [node for node in module.names.values() if isinstance(node, ast.FunctionDef)] if module else []
        for function in functions:
            comparisons = [node for node in ast.walk(function) if isinstance(node, ast.Compare)]
            for compared in comparisons:
                match compared:
                    case ast.Compare(ops=[ast.Eq()], comparators=[ast.Constant(value=str(flag))]) if flag.startswith("--"):
                        if flag not in self.options:
                            choices = [c for node in comparisons if (c := _refused_unless(node))]
                            self._keep([flag], {"value": "one", **({"choices": choices[0]} if len(choices) == 1 else {})}, False)

    def _stands_for(self, name: str, given: Sequence[Any], node: ast.Call, frame: Frame) -> Any:
        if name == "get_kwargs" and len(given) == 1 and isinstance(given[0], Class):
            return self._config_kwargs(given[0])
        if name == "add_cli_args_from_dataclass" and PARSER in given:
            if len(given) != 2 or not isinstance(given[1], Class):
                self._unreadable(node, frame, "not all fields of a class that is in the tree")
            self._annotated_fields(given[1])
            return None
        return UNKNOWN

    def _on_parser(self, name: str, node: ast.Call, frame: Frame) -> Any:
        if name in ("add_argument_group", "add_mutually_exclusive_group"):
            return PARSER
        if name == "set_defaults":
            return None
        if name != "add_argument":
            self._unreadable(node, frame, f"a use of the parser that is not followed here: {name}")
        flags = self._items(node.args, frame)
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                more = self._value(keyword.value, frame)
                if not isinstance(more, dict):
                    self._unreadable(node, frame, f"an option with keywords that are not known: {ast.unparse(keyword.value)}")
                kwargs.update(more)
            elif keyword.arg in _KEYWORDS:
                kwargs[keyword.arg] = self._value(keyword.value, frame)
        if not isinstance(flags, list) or not all(isinstance(flag, str) for flag in flags):
            self._unreadable(node, frame, "an option without a name that is written out")
        try:
            self._add(flags, kwargs)
        except UnreadableError as error:
            self._unreadable(node, frame, str(error))
        return UNKNOWN

    def _add(self, flags: Sequence[str], kwargs: dict[str, Any]) -> None:
        """Keep one option, from what ``add_argument`` would be given."""
        if not any(flag.startswith("-") for flag in flags):
            return  # a positional argument
        action, nargs = kwargs.get("action"), kwargs.get("nargs")
        if isinstance(action, Class):
            if "nargs" not in kwargs:
                nargs = self._own_nargs(action)
            action = None
        entry: Entry = {}
        boolean = isinstance(action, Outside) and action.name == _BOOLEAN
        if boolean or (isinstance(action, str) and action in _NO_VALUE):
            entry["value"] = "none"
        elif action in (None, "store", "append", "extend"):
            if nargs is UNKNOWN or not isinstance(nargs, str | int | None):
                raise UnreadableError(f"{flags[0]} takes a number of values that is not known")
            kind = _KINDS.get(nargs, "many" if isinstance(nargs, int) else None)
            if kind is None:
                raise UnreadableError(f"{flags[0]} has an nargs that is not known here: {nargs!r}")
            entry["value"] = kind
        else:
            raise UnreadableError(f"{flags[0]} has an action that is not known here: {action!r}")
        if entry["value"] != "none":
            entry.update(_choices(kwargs))
        self._keep(flags, entry, boolean)

    def _keep(self, flags: Sequence[str], entry: Entry, twins: bool) -> None:
        for flag in flags:
            if not _FLAG.fullmatch(flag):
                raise UnreadableError(f"{flag!r} is no flag")
            self.options[flag] = entry
            if twins and flag.startswith("--"):
                self.options[f"--no-{flag[2:]}"] = {"value": "none"}
        self.entries += 1

    def _own_nargs(self, action: Class) -> Any:
        """The nargs that a class of actions takes if it is given none."""
        init = self._attribute(action, "__init__")
        if not isinstance(init, Function):
            return None
        spec = init.node.args
        parameters = [*spec.posonlyargs, *spec.args]
        defaults = dict(zip([p.arg for p in reversed(parameters)], reversed(spec.defaults)))
        defaults.update({p.arg: value for p, value in zip(spec.kwonlyargs, spec.kw_defaults) if value is not None})
        return self._value(defaults["nargs"], Frame(init.module, {})) if "nargs" in defaults else None

    # Annotations, as vLLM reads them.

    def _config_kwargs(self, cls: Class) -> Kwargs:
        """What vLLM's ``get_kwargs`` gives for a class: keywords for ``add_argument``, by field."""
        if not self._is_dataclass(cls):
            raise UnreadableError(f"{cls.module.path}:{cls.node.lineno}: {cls.node.name} is no dataclass")
        kwargs = Kwargs()
        for name, annotation, module, _ in self._fields(cls):
            kwargs[name] = self._keywords(self._hints(annotation, module))
        return kwargs

    def _keywords(self, hints: list[_Hint]) -> dict[str, Any]:
        kinds = {hint.kind for hint in hints}
        literals = [value for hint in hints if hint.kind == "literal" for value in hint.values]
        sequence = next((hint for kind in ("tuple", "list", "set") for hint in hints if hint.kind == kind), None)
        if "dataclass" in kinds:
            return {}
        if kinds == {"bool", "str", "none"}:
            return {"nargs": "?"}
        if "bool" in kinds:
            return {"action": Outside(_BOOLEAN)}
        if literals:
            return {} if "str" in kinds else {"choices": literals}
        if sequence:
            elements = sequence.elements
            count = len(elements) if sequence.kind == "tuple" and not any(e.kind == "ellipsis" for e in elements) else "+"
            choices = list(elements[0].values) if len(elements) == 1 and elements[0].kind == "literal" else None
            return {"nargs": count, **({"choices": choices} if choices else {})}
        return {}

    def _hints(self, annotation: ast.expr, module: Module, depth: int = 0) -> list[_Hint]:
        """The kinds of value that an annotation allows; what is from outside of the tree is one of no special kind."""
        if depth > MAX_DEPTH:
            raise UnreadableError(f"{module.path}:{annotation.lineno}: an annotation that refers to itself")
        match annotation:
            case ast.Constant(value=None):
                return [_Hint("none")]
            case ast.Constant(value=str(text)):
                try:
                    return self._hints(ast.parse(text.strip(), mode="eval").body, module, depth + 1)
                except SyntaxError:
                    raise UnreadableError(f"{module.path}:{annotation.lineno}: an annotation that is no expression") from None
            case ast.Constant(value=value) if value is ...:
                return [_Hint("ellipsis")]
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return self._hints(left, module, depth + 1) + self._hints(right, module, depth + 1)
            case ast.Subscript(value=base, slice=inner):
                return self._generic(base, inner, module, depth)
            case ast.Name(id=name):
                if (known := _PLAIN.get(name)) and name not in module.names:
                    return [_Hint(known)]
                found = self._tree.find(module, name)
                if found is None:
                    return [_Hint("other")]
                where, node = found
                if isinstance(node, Import):
                    return [_Hint(_PLAIN.get(node.name or "", "other"))]
                if isinstance(node, ast.ClassDef):
                    return [_Hint("dataclass" if self._is_dataclass(Class(where, node)) else "other")]
                return self._hints(node, where, depth + 1) if isinstance(node, ast.expr) else [_Hint("other")]
        return [_Hint("other")]

    def _generic(self, base: ast.expr, inner: ast.expr, module: Module, depth: int) -> list[_Hint]:
        name = ast.unparse(base).rpartition(".")[2]
        items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        if name == "Literal":
            return [_Hint("literal", values=tuple(self._literals(items, module, depth)))]
        if name in ("Annotated", "A", "SkipValidation"):
            return self._hints(items[0], module, depth + 1)
        if name in ("Optional", "Union"):
            hints = [hint for item in items for hint in self._hints(item, module, depth + 1)]
            return [*hints, _Hint("none")] if name == "Optional" else hints
        kind = _PLAIN.get(name, "other")
        if kind in ("list", "set", "tuple"):
            first = self._hints(items[0], module, depth + 1)
            rest = [hint for item in items[1:] for hint in self._hints(item, module, depth + 1)[:1]]
            return [_Hint(kind, elements=(first[0] if len(first) == 1 else _Hint("str"), *rest))]
        return [_Hint(kind)]

    def _literals(self, items: Iterable[ast.expr], module: Module, depth: int) -> Iterator[Any]:
        for item in items:
            value = self._value(item, Frame(module, {}))
            if isinstance(value, str | int):
                yield value
            elif value is not None:  # which no word on a command line is
                for hint in self._hints(item, module, depth + 1):
                    if hint.kind != "literal":
                        raise UnreadableError(f"{module.path}:{item.lineno}: a Literal of what is not written out")
                    yield from hint.values

    # Annotations, as SGLang 0.5.17 reads them.

    def _annotated_fields(self, cls: Class) -> None:
        """Keep what SGLang's ``add_cli_args_from_dataclass`` would add."""
        for name, annotation, module, _ in self._fields(cls):
            match annotation:
                case ast.Subscript(value=base, slice=ast.Tuple(elts=[kind, *rest])) if ast.unparse(base).endswith(
                    ("A", "Annotated")
                ):
                    about = next((item for item in rest if _is_text(item) or _is_call(item, "Arg")), None)
                    if about is None:
                        continue
                    frame = Frame(module, {})
                    keywords = about.keywords if isinstance(about, ast.Call) else []
                    arg: dict[str | None, Any] = {
                        k.arg: self._value(k.value, frame) for k in keywords if k.arg not in (None, "help")
                    }
                    if isinstance(about, ast.Call) and any(not _is_text(item) for item in about.args):
                        self._unreadable(about, frame, "an Arg with other than keywords")
                    if arg.get("no_cli"):
                        continue
                    first = arg.get("cli_name") or f"--{name.replace('_', '-')}"
                    flags = [first, *(arg.get("aliases") or [])]
                    try:
                        self._add(flags, self._annotated(kind, arg, module))
                    except (UnreadableError, TypeError) as error:
                        self._unreadable(about, frame, str(error))

    def _annotated(self, kind: ast.expr, arg: dict[str | None, Any], module: Module) -> dict[str, Any]:
        """The keywords for ``add_argument`` from the kind of a field and its ``Arg``."""
        if (action := arg.get("action")) is not None:
            return {"action": action, **(arg.get("action_kwargs") or {})}
        hints = [hint for hint in self._hints(kind, module) if hint.kind != "none"]
        only = hints[0] if len(hints) == 1 else _Hint("other")
        keywords: dict[str, Any] = {"type": arg.get("type_parser")}
        if choices := arg.get("choices"):
            keywords["choices"] = choices
        if only.kind == "literal":
            return {"choices": list(only.values), **keywords}
        if only.kind == "list" and arg.get("type_parser") is None:
            return {**keywords, "nargs": arg.get("nargs") or "+"}
        if only.kind == "bool":
            return {"action": "store_true"}
        return {**keywords, "nargs": arg.get("nargs")}


@dataclass(frozen=True)
class _Hint:
    """One kind of value that an annotation allows."""

    kind: str
    values: tuple[Any, ...] = ()
    elements: tuple[_Hint, ...] = ()


_PLAIN = {
    "bool": "bool", "int": "int", "float": "float", "str": "str", "dict": "dict", "Dict": "dict", "list": "list", "List": "list",
    "set": "set", "Set": "set", "tuple": "tuple", "Tuple": "tuple",
}  # fmt: skip


def _choices(kwargs: dict[str, Any]) -> Entry:
    """The choices of an option, where they are written out and compared with the word as it stands."""
    choices, kind = kwargs.get("choices"), kwargs.get("type")
    if not isinstance(choices, list | tuple) or not choices or not all(isinstance(choice, str | int) for choice in choices):
        return {}
    ordered = sorted(set(choices), key=lambda choice: (isinstance(choice, str), choice))
    if isinstance(kind, Lambda):
        return {"choices": ordered, "folded": True} if kind.text.endswith(_FOLDS) else {}
    return {} if isinstance(kind, Function) else {"choices": ordered}


def _is_call(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name


def _is_text(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=str()) | ast.JoinedStr():
            return True
        case ast.BinOp(left=left, op=ast.Add()):
            return _is_text(left)
    return False


def _refused_unless(node: ast.Compare) -> list[str]:
    """The words of ``x not in ("a", "b")``."""
    match node:
        case ast.Compare(left=ast.Name(), ops=[ast.NotIn()], comparators=[ast.Tuple(elts=items) | ast.List(elts=items)]):
            words = [item.value for item in items if isinstance(item, ast.Constant)]
            return sorted(word for word in words if isinstance(word, str))
    return []
