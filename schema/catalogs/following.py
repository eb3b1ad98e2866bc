"""Following the functions that build a parser, statement by statement over the syntax tree.

Only what decides about options is worked out: plain text, lists and mappings, classes and functions of the tree.  The rest is
``UNKNOWN`` and stays so.  Where a condition is not known both branches are followed.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from schema.catalogs.tree import MAX_DEPTH, Import, Module, Tree, UnreadableError, bind


class _Unknown:
    """A value that was not worked out."""

    def __repr__(self) -> str:
        return "something unknown"


UNKNOWN = _Unknown()
PARSER = object()
"""The argument parser, and each of its groups."""


@dataclass(frozen=True)
class Class:
    """A class of the tree."""

    module: Module
    node: ast.ClassDef


@dataclass(frozen=True)
class Function:
    """A function of the tree; as a method also the class that has it, and the one that it was asked of."""

    module: Module
    node: ast.FunctionDef
    owner: Class | None = None
    cls: Class | None = None


@dataclass(frozen=True)
class _Super:
    """What ``super()`` gives."""

    owner: Class
    cls: Class


@dataclass(frozen=True)
class Outside:
    """Something of a module that is not in the tree, by its dotted name."""

    name: str


@dataclass(frozen=True)
class _Member:
    """A member of an enumeration."""

    name: str
    value: Any


@dataclass(frozen=True)
class Lambda:
    """A function that is written out in place: its source."""

    text: str


class Kwargs(dict[str, Any]):
    """What ``get_kwargs`` gives: for each field of a class, the keywords of its option."""


@dataclass
class Frame:
    """The names of one function being followed."""

    module: Module
    names: dict[str, Any]
    owner: Class | None = None
    cls: Class | None = None
    depth: int = 0
    body_of: Class | None = None
    """The class whose body is being looked at; its names hold there."""


class _Return(Exception):  # noqa: N818 - no error
    def __init__(self, value: Any) -> None:
        self.value = value


class Follower(ABC):
    """Follows a function that is given the parser, and those that it calls with it."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._busy: set[ast.AST] = set()

    @abstractmethod
    def _on_parser(self, name: str, node: ast.Call, frame: Frame) -> Any:
        """A method of the parser is called: what it gives."""

    def _stands_for(self, name: str, given: Sequence[Any], node: ast.Call, frame: Frame) -> Any:
        """A call of a function that is known here and is not followed: what it gives, else ``UNKNOWN``."""
        return UNKNOWN

    def run(self, module: Module, *names: str) -> None:
        """Follow a function, or a method of a class, that is given the parser."""
        function: Any = self._global(module, names[0])
        if isinstance(function, Class) and len(names) == 2:
            function = self._attribute(function, names[1])
        if not isinstance(function, Function):
            raise UnreadableError(f"{module.path}: has no {'.'.join(names)}, which adds the options")
        self._enter(function, [PARSER], {}, 0)

    def registry(self, module: str, *names: str) -> list[str]:
        """The keys of a mapping that is written out in a module or in a class of it."""
        found = self._tree.module(module)
        if found is None:
            raise UnreadableError(f"has no module {module}, which names the parsers")
        value: Any = self._global(found, names[0])
        if isinstance(value, Class) and len(names) == 2:
            value = self._attribute(value, names[1])
        if not isinstance(value, dict) or not value or not all(isinstance(key, str) for key in value):
            raise UnreadableError(f"{found.path}: {'.'.join(names)} is no mapping of parser names that is written out")
        return sorted(value)

    # Functions and statements.

    def _enter(self, function: Function, args: Sequence[Any], kwargs: dict[str, Any], depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise UnreadableError(f"{function.module.path}:{function.node.lineno}: calls itself")
        spec = function.node.args
        decorators = {ast.unparse(node) for node in function.node.decorator_list}
        values = list(args)
        if "classmethod" in decorators:
            values.insert(0, function.cls)
        parameters = [*spec.posonlyargs, *spec.args]
        frame = Frame(function.module, {}, function.owner, function.cls, depth)
        for parameter, default in zip(reversed(parameters), reversed(spec.defaults)):
            frame.names[parameter.arg] = self._value(default, frame)
        for parameter, keyword_default in zip(spec.kwonlyargs, spec.kw_defaults):
            frame.names[parameter.arg] = self._value(keyword_default, frame) if keyword_default else UNKNOWN
        for parameter, value in zip(parameters, values):
            frame.names[parameter.arg] = value
        frame.names.update(kwargs)
        for parameter in parameters:
            frame.names.setdefault(parameter.arg, UNKNOWN)
        try:
            self._body(function.node.body, frame)
        except _Return as done:
            return done.value
        return None

    def _body(self, statements: Iterable[ast.stmt], frame: Frame) -> None:
        for statement in statements:
            self._statement(statement, frame)

    def _statement(self, statement: ast.stmt, frame: Frame) -> None:
        match statement:
            case ast.Expr(value=value):
                self._value(value, frame)
            case ast.Assign(targets=targets, value=value):
                result = self._value(value, frame)
                for target in targets:
                    self._assign(target, result, frame)
            case ast.AnnAssign(target=target, value=value):
                if value is not None:
                    self._assign(target, self._value(value, frame), frame)
            case ast.AugAssign(target=target, op=op, value=value):
                reading = ast.parse(ast.unparse(target), mode="eval").body
                before, more = self._value(reading, frame), self._value(value, frame)
                known = isinstance(op, ast.Add) and isinstance(before, list) and isinstance(more, list)
                self._assign(target, before + more if known else UNKNOWN, frame)
            case ast.Delete(targets=targets):
                for target in targets:
                    match target:
                        case ast.Subscript(value=value, slice=key):
                            holder, name = self._value(value, frame), self._value(key, frame)
                            if isinstance(holder, dict) and isinstance(name, str):
                                holder.pop(name, None)
                        case ast.Name(id=name):
                            frame.names[name] = UNKNOWN
            case ast.If(test=test, body=body, orelse=orelse):
                decided = self._value(test, frame)
                if decided is UNKNOWN:
                    self._body([*body, *orelse], frame)
                else:
                    self._body(body if decided else orelse, frame)
            case ast.For(target=target, iter=values, body=body, orelse=[]):
                iterated = self._value(values, frame)
                if not isinstance(iterated, list | tuple):
                    self._unreadable(statement, frame, "a loop over what is not written out")
                for item in iterated:
                    self._assign(target, item, frame)
                    self._body(body, frame)
            case ast.Return(value=value):
                raise _Return(self._value(value, frame) if value is not None else None)
            case ast.ImportFrom() | ast.Import():
                local = Module(frame.module.name, frame.module.path, frame.module.package)
                bind(statement, local)
                for name in local.names:
                    frame.names[name] = self._global(local, name)
            case ast.With(body=body):
                self._body(body, frame)
            case ast.Pass() | ast.Assert() | ast.Global() | ast.Nonlocal():
                pass
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                frame.names[name] = UNKNOWN
            case _:
                self._unreadable(statement, frame, f"a statement that is not followed here: {type(statement).__name__.lower()}")

    def _assign(self, target: ast.expr, value: Any, frame: Frame) -> None:
        match target:
            case ast.Name(id=name):
                frame.names[name] = value
            case ast.Subscript(value=holder, slice=key):
                mapping, name = self._value(holder, frame), self._value(key, frame)
                if isinstance(mapping, dict) and isinstance(name, str):
                    mapping[name] = value
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                known = isinstance(value, list | tuple) and len(value) == len(targets)
                for i, inner in enumerate(targets):
                    self._assign(inner, value[i] if known else UNKNOWN, frame)

    def _unreadable(self, node: ast.stmt | ast.expr, frame: Frame, what: str) -> NoReturn:
        raise UnreadableError(f"{frame.module.path}:{node.lineno}: {what}")

    # Values.

    def _value(self, node: ast.expr, frame: Frame) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                if name in frame.names:
                    return frame.names[name]
                if frame.body_of is not None and name in self._assigned(frame.body_of):
                    return self._from_class(frame.body_of, name, [frame.body_of])
                return self._global(frame.module, name)
            case ast.Attribute(value=inner, attr=name):
                base = self._value(inner, frame)
                if base is PARSER:
                    self._unreadable(node, frame, f"a use of the parser that is not followed here: {name}")
                return self._attribute(base, name)
            case ast.Subscript(value=inner, slice=key):
                holder, index = self._value(inner, frame), self._value(key, frame)
                if isinstance(holder, Kwargs) and isinstance(index, str) and index not in holder:
                    self._unreadable(node, frame, f"no field {index}")
                try:
                    return holder[index] if isinstance(holder, dict | list | tuple) else UNKNOWN
                except (KeyError, IndexError, TypeError):
                    return UNKNOWN
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                return self._items(items, frame)
            case ast.Dict(keys=keys, values=values):
                return self._mapping(keys, values, frame)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                first, second = self._value(left, frame), self._value(right, frame)
                both = (isinstance(first, kind) and isinstance(second, kind) for kind in (list, str))
                return first + second if any(both) else UNKNOWN
            case ast.JoinedStr(values=pieces):
                words = [self._value(p.value if isinstance(p, ast.FormattedValue) else p, frame) for p in pieces]
                return "".join(words) if all(isinstance(word, str) for word in words) else UNKNOWN
            case ast.Call():
                return self._call(node, frame)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                decided = self._value(test, frame)
                return UNKNOWN if decided is UNKNOWN else self._value(body if decided else orelse, frame)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                decided = self._value(operand, frame)
                return UNKNOWN if decided is UNKNOWN else not decided
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._comparison(self._value(left, frame), op, self._value(right, frame))
            case ast.Lambda(body=body):
                return Lambda(ast.unparse(body))
            case ast.ListComp(elt=element, generators=[generator]) | ast.GeneratorExp(elt=element, generators=[generator]):
                return self._comprehension(element, generator, frame)
        return UNKNOWN

    def _items(self, items: Iterable[ast.expr], frame: Frame) -> Any:
        values: list[Any] = []
        for item in items:
            if isinstance(item, ast.Starred):
                more = self._value(item.value, frame)
                if not isinstance(more, list | tuple):
                    return UNKNOWN
                values += more
            else:
                values.append(self._value(item, frame))
        return values

    def _mapping(self, keys: Sequence[ast.expr | None], values: Sequence[ast.expr], frame: Frame) -> Any:
        mapping: dict[Any, Any] = {}
        for key, value in zip(keys, values):
            if key is None:
                more = self._value(value, frame)
                if not isinstance(more, dict):
                    return UNKNOWN
                mapping.update(more)
            else:
                name = self._value(key, frame)
                if not isinstance(name, str | int):
                    return UNKNOWN
                # The values of a long table are of no use here; to look each up would parse the modules they are from.
                mapping[name] = self._value(value, frame) if not isinstance(value, ast.Name) or frame.names else UNKNOWN
        return mapping

    @staticmethod
    def _comparison(left: Any, op: ast.cmpop, right: Any) -> Any:
        if left is UNKNOWN or right is UNKNOWN:
            return UNKNOWN
        match op:
            case ast.Eq() | ast.Is():
                return left == right
            case ast.NotEq() | ast.IsNot():
                return left != right
            case ast.In() if isinstance(right, dict | list | tuple):
                return left in right
            case ast.NotIn() if isinstance(right, dict | list | tuple):
                return left not in right
        return UNKNOWN

    def _comprehension(self, element: ast.expr, generator: ast.comprehension, frame: Frame) -> Any:
        iterated = self._value(generator.iter, frame)
        if isinstance(iterated, Class):
            iterated = [self._attribute(iterated, name) for name in self._assigned(iterated)]
        if not isinstance(iterated, list | tuple) or generator.ifs:
            return UNKNOWN
        inner = Frame(frame.module, dict(frame.names), frame.owner, frame.cls, frame.depth)
        values = []
        for item in iterated:
            self._assign(generator.target, item, inner)
            values.append(self._value(element, inner))
        return values

    def _global(self, module: Module, name: str) -> Any:
        found = self._tree.find(module, name)
        if found is None:
            return UNKNOWN
        where, node = found
        match node:
            case Import(module=origin, name=inner):
                return Outside(f"{origin}.{inner}" if inner else origin)
            case ast.ClassDef():
                return Class(where, node)
            case ast.FunctionDef():
                return Function(where, node)
            case ast.expr():
                return self._once(node, Frame(where, {}))
        return UNKNOWN

    def _once(self, node: ast.expr, frame: Frame) -> Any:
        """A value outside of functions, which may refer to itself."""
        if node in self._busy:
            return UNKNOWN
        self._busy.add(node)
        try:
            return self._value(node, frame)
        finally:
            self._busy.discard(node)

    # Classes.

    def _attribute(self, base: Any, name: str) -> Any:
        match base:
            case Outside(name=dotted):
                module = self._tree.module(dotted)
                return self._global(module, name) if module else Outside(f"{dotted}.{name}")
            case _Member():
                return base.name if name == "name" else base.value if name == "value" else UNKNOWN
            case Class():
                return self._from_class(base, name, self._order(base))
        return UNKNOWN

    def _from_class(self, cls: Class, name: str, order: Iterable[Class]) -> Any:
        for owner in order:
            for statement in owner.node.body:
                match statement:
                    case ast.FunctionDef(name=found) if found == name:
                        return Function(owner.module, statement, owner, cls)
                    case (
                        ast.Assign(targets=[ast.Name(id=found)], value=ast.expr() as value)
                        | ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value)
                    ) if found == name:
                        result = self._once(value, Frame(owner.module, {}, body_of=owner))
                        return _Member(name, result) if self._is_enumeration(cls) else result
        return UNKNOWN

    @staticmethod
    def _assigned(cls: Class) -> list[str]:
        targets = [statement.targets[0] for statement in cls.node.body if isinstance(statement, ast.Assign)]
        return [target.id for target in targets if isinstance(target, ast.Name) and not target.id.startswith("_")]

    def _order(self, cls: Class, depth: int = 0) -> list[Class]:
        """The class and those that it builds on, in the order in which names are looked up."""
        order = [cls]
        for base in cls.node.bases if depth < MAX_DEPTH else ():
            found = self._value(base, Frame(cls.module, {}))
            if isinstance(found, Class):
                order += [other for other in self._order(found, depth + 1) if other not in order]
        return order

    def _is_enumeration(self, cls: Class) -> bool:
        return any(ast.unparse(base).endswith(("Enum", "Flag")) for other in self._order(cls) for base in other.node.bases)

    def _is_dataclass(self, cls: Class) -> bool:
        return any(has_fields(other.node) for other in self._order(cls))

    def _fields(self, cls: Class) -> Iterator[tuple[str, ast.expr, Module, bool]]:
        """Name, annotation, its module and whether there is a default, of every field of a dataclass."""
        found: dict[str, tuple[ast.expr, Module, bool]] = {}
        for owner in reversed(self._order(cls)):
            for statement in owner.node.body if has_fields(owner.node) else ():
                match statement:
                    case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                        if not ast.unparse(annotation).startswith(("ClassVar", "InitVar")):
                            found[name] = (annotation, owner.module, value is not None)
        for name, (annotation, module, default) in found.items():
            yield name, annotation, module, default

    # Calls.

    def _call(self, node: ast.Call, frame: Frame) -> Any:
        function: Any = UNKNOWN
        name = ""
        match node.func:
            case ast.Attribute(value=inner, attr=name):
                base = self._value(inner, frame)
                if base is PARSER:
                    return self._on_parser(name, node, frame)
                if isinstance(base, _Super):
                    order = self._order(base.cls)
                    function = self._from_class(base.cls, name, order[order.index(base.owner) + 1 :])
                elif isinstance(base, dict | list | str):
                    return self._method(base, name, self._items(node.args, frame))
                else:
                    function = self._attribute(base, name)
            case ast.Name(id="super") if frame.owner and frame.cls and not node.args:
                return _Super(frame.owner, frame.cls)
            case ast.Name(id=name):
                function = self._value(node.func, frame)
                if function is UNKNOWN and name in ("list", "tuple", "set", "sorted"):
                    return self._collected(name, self._items(node.args, frame))
        args = self._items(node.args, frame)
        if not isinstance(args, list):
            args = [self._value(arg, frame) for arg in node.args if not isinstance(arg, ast.Starred)]
        kwargs = {keyword.arg: self._value(keyword.value, frame) for keyword in node.keywords if keyword.arg}
        given = [*args, *kwargs.values()]
        result = self._stands_for(name, given, node, frame)
        if result is not UNKNOWN:
            return result
        followed = any(value is PARSER or isinstance(value, Kwargs) for value in given)
        if followed and isinstance(function, Function):
            return self._enter(function, args, kwargs, frame.depth + 1)
        if PARSER in given and name != "pre_register_and_update":  # which only platforms of their own answer
            self._unreadable(node, frame, f"the parser is given to {ast.unparse(node.func)}, which is not in the tree")
        return UNKNOWN

    @staticmethod
    def _method(base: Any, name: str, args: Any) -> Any:
        """A method of a plain value."""
        if not isinstance(args, list) or any(arg is UNKNOWN for arg in args):
            return UNKNOWN
        if isinstance(base, dict):
            match name, args:
                case "keys", []:
                    return list(base)
                case "values", []:
                    return list(base.values())
                case "items", []:
                    return [list(item) for item in base.items()]
                case (("get" | "pop" | "setdefault"), [str(key), *default]):
                    return getattr(base, name)(key, *(default or [None]))
            return UNKNOWN
        if isinstance(base, str) and name in ("replace", "lower", "upper", "strip", "join", "format"):
            try:
                return getattr(base, name)(*args)
            except (TypeError, ValueError, KeyError, IndexError):
                return UNKNOWN
        if isinstance(base, list) and name in ("append", "extend"):
            getattr(base, name)(*args)
            return None
        return UNKNOWN

    @staticmethod
    def _collected(name: str, args: Any) -> Any:
        values = args[0] if isinstance(args, list) and len(args) == 1 else args
        if isinstance(values, dict):
            values = list(values)
        if not isinstance(values, list | tuple) or any(value is UNKNOWN for value in values):
            return UNKNOWN
        return sorted(values, key=str) if name in ("sorted", "set") else list(values)


def has_fields(node: ast.ClassDef) -> bool:
    """Whether a class is made a dataclass, by the decorators that the engines use for it."""
    names = (ast.unparse(d.func if isinstance(d, ast.Call) else d).rpartition(".")[2] for d in node.decorator_list)
    return any(name in ("dataclass", "config") for name in names)
