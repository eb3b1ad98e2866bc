"""The files of a wheel: what stands in them, and what their names mean.  Nothing of it is imported."""

from __future__ import annotations

import ast
import re
import zipfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

MAX_BYTES = 20_000_000
MAX_DEPTH = 60
_DIST_INFO = re.compile(r"[^/]+\.dist-info/METADATA")


class UnreadableError(Exception):
    """Something is not laid out as is known here; says where and what, in one line."""


@dataclass(eq=False)
class Module:
    """One parsed file, and what its names are bound to at the top level."""

    name: str
    path: str
    package: str
    names: dict[str, ast.AST | Import] = field(default_factory=dict)


@dataclass(frozen=True)
class Import:
    """A name that is imported: of a module, or the module itself."""

    module: str
    name: str | None


class Tree:
    """The Python files of a wheel or of a folder, parsed when they are asked for."""

    def __init__(self, path: Path) -> None:
        self.name = path.resolve().name
        self._zip: zipfile.ZipFile | None = None
        self._folder = path
        self._modules: dict[str, Module | None] = {}
        try:
            if path.is_dir():
                metadata = [str(PurePosixPath(p.parent.name) / p.name) for p in sorted(path.glob("*.dist-info/METADATA"))]
                self._files = None
            else:
                self._zip = zipfile.ZipFile(path)
                self._files = frozenset(self._zip.namelist())
                metadata = sorted(name for name in self._files if _DIST_INFO.fullmatch(name))
        except zipfile.BadZipFile:
            raise UnreadableError("is neither a wheel nor a folder that one was unpacked into") from None
        except OSError as error:
            raise UnreadableError(f"can not be read: {(error.strerror or str(error)).lower()}") from None
        if len(metadata) != 1:
            raise UnreadableError(f"holds {len(metadata)} .dist-info/METADATA, which the version is read from; a wheel has one")
        version = re.search(r"^Version: *(\S+)$", self._text(metadata[0]) or "", re.MULTILINE)
        if version is None:
            raise UnreadableError(f"{metadata[0]} names no version")
        self.version = version[1]

    def _text(self, file: str) -> str | None:
        try:
            if self._zip is not None:
                if self._files is None or file not in self._files:
                    return None
                if self._zip.getinfo(file).file_size > MAX_BYTES:
                    raise UnreadableError(f"{file} is larger than {MAX_BYTES:,} bytes")
                return self._zip.read(file).decode()
            path = self._folder / file
            if not path.is_file():
                return None
            if path.stat().st_size > MAX_BYTES:
                raise UnreadableError(f"{file} is larger than {MAX_BYTES:,} bytes")
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise UnreadableError(f"{file} is not UTF-8 text") from None
        except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, ValueError, EOFError) as error:
            raise UnreadableError(f"{file} can not be read: {' '.join(str(error).split())}") from None
        except Exception as error:
            if type(error).__name__ == "error":  # zlib.error, of a damaged wheel
                raise UnreadableError(f"{file} can not be read: {' '.join(str(error).split())}") from None
            raise

    def module(self, name: str) -> Module | None:
        """The module of that dotted name, or None if the tree has none."""
        if name not in self._modules:
            self._modules[name] = None
            stem = name.replace(".", "/")
            for file, package in ((f"{stem}.py", name.rpartition(".")[0]), (f"{stem}/__init__.py", name)):
                text = self._text(file)
                if text is not None:
                    self._modules[name] = self._parse(name, file, package, text)
                    break
        return self._modules[name]

    def _parse(self, name: str, file: str, package: str, text: str) -> Module:
        try:
            body = ast.parse(text, file).body
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 1
            raise UnreadableError(f"{file}:{line}: is no Python that this one can read: {getattr(error, 'msg', error)}") from None
        module = Module(name, file, package)
        for statement in body:
            bind(statement, module)
        return module

    def find(self, module: Module, name: str, depth: int = 0) -> tuple[Module, ast.AST | Import] | None:
        """What a name of a module stands for, imports followed: a node and the module it is in, or None if it is from outside."""
        bound = module.names.get(name)
        if bound is None or depth > MAX_DEPTH:
            return None
        if not isinstance(bound, Import):
            return module, bound
        target = self.module(bound.module)
        if target is None:
            return module, bound
        if bound.name is None:
            return target, bound
        found = self.find(target, bound.name, depth + 1)
        return found if found is not None else (module, bound)


def bind(statement: ast.stmt, module: Module) -> None:
    """Record what a statement at the top level binds; where branches differ, what holds at run time comes last."""
    match statement:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            module.names[name] = statement
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                if isinstance(target, ast.Name):
                    module.names[target.id] = value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            module.names[name] = value
        case ast.Import(names=aliases):
            for alias in aliases:
                module.names[alias.asname or alias.name.partition(".")[0]] = Import(
                    alias.name if alias.asname else alias.name.partition(".")[0], None
                )
        case ast.ImportFrom(module=origin, names=aliases, level=level):
            package = module.package.split(".") if module.package else []
            parts = package[: len(package) - level + 1] if level else []
            source = ".".join([*parts, *([origin] if origin else [])])
            for alias in aliases:
                module.names[alias.asname or alias.name] = Import(source, alias.name)
        case ast.If(test=test, body=body, orelse=orelse):
            typing_only = isinstance(test, ast.Name | ast.Attribute) and ast.unparse(test).endswith("TYPE_CHECKING")
            for inner in [*body, *orelse] if typing_only else [*orelse, *body]:
                bind(inner, module)
        case ast.Try(body=body, handlers=handlers):
            for inner in [*(s for handler in handlers for s in handler.body), *body]:
                bind(inner, module)
