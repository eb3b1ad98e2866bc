"""What the models and their fields mean, from the strings in their source.

Pydantic can collect these itself, while the classes are made; that is a third of the time it takes to import them, and only the
JSON Schema and the author's guide need them.  Python itself may run without docstrings; the source has them always.
"""

from __future__ import annotations

import ast
import inspect
from functools import cache

from pydantic import BaseModel

from schema import models


@cache
def _classes() -> list[ast.ClassDef]:
    return [node for node in ast.parse(inspect.getsource(models)).body if isinstance(node, ast.ClassDef)]


@cache
def _by_class() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for node in _classes():
        docs = found.setdefault(node.name, {})
        for field, text in zip(node.body, node.body[1:]):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(doc))):
                    docs[name] = " ".join(doc.split())
    return found


@cache
def model_docs() -> dict[str, str]:
    """What each documented model is, by name."""
    docs = ((node.name, ast.get_docstring(node)) for node in _classes())
    return {name: doc for name, doc in docs if doc}


def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """The meaning of each documented field of a model, those of the models it builds on included."""
    docs: dict[str, str] = {}
    for base in reversed(model.__mro__):
        docs.update(_by_class().get(base.__name__, {}))
    return docs
