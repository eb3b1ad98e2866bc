"""The reference of the recipe language, drawn from the models and their docstrings: Markdown for the author's guide."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, WithJsonSchema
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from schema import vocabulary
from schema.docs import field_docs, model_docs
from schema.models import Recipe


def statuses_table() -> str:
    """The statuses of evidence and their badges."""
    lines = ["| Badge | Evidence | |", "|---|---|---|"]
    for name, status in vocabulary.statuses().items():
        lines.append(f"| **{status.badge}** | `{name}` | {status.means} |")
    lines.append("| **Measured** | `measured` | Ran for this repository, without a check of its answers. |")
    lines.append("| **Fails a check** | any | A check of exactly this selection did not pass. |")
    lines.append("| **Not verified** | none | Nothing was published or measured for exactly this selection. |")
    return "\n".join(lines)


def fields() -> str:
    """One section a model, from the recipe inwards: each field with its kind, whether it is needed, and what it means."""
    order: list[type[BaseModel]] = [Recipe]
    for model in order:
        for field in model.model_fields.values():
            order += [found for found in _models(field.annotation) if found not in order]
    return "\n\n".join(_section(model) for model in order) + "\n"


def _section(model: type[BaseModel]) -> str:
    doc = " ".join(model_docs().get(model.__name__, "").split())
    lines = [f"### {model.__name__} {{ #{model.__name__.lower()} }}", "", doc, "", "| Field | |", "|---|---|"]
    docs = field_docs(model)
    for name, field in model.model_fields.items():
        means = docs.get(name, "").replace("``", "`").replace("|", "\\|")
        holds = f"{_names(field.metadata) or _holds(field.annotation)}{'' if field.is_required() else _default(field)}"
        lines.append(f"| `{name}`<br><small>{holds}</small> | {means} |")
    return "\n".join(lines)


def _default(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    if default is None or default in ([], {}) or default is PydanticUndefined:
        return ", optional"
    return f", else `{str(default).lower()}`"


def _names(metadata: Iterable[Any]) -> str:
    """The names of a closed vocabulary, or nothing."""
    schemas = [item.json_schema for item in metadata if isinstance(item, WithJsonSchema) and item.json_schema]
    return ", ".join(f"`{name}`" for schema in schemas for name in schema.get("enum", ()))


def _holds(kind: Any) -> str:
    """A type in a reader's words, models as links."""
    kind = _plain(kind)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    if origin is list:
        return f"list: {_holds(arguments[0])}"
    if origin is dict:
        return f"mapping: name to {_holds(arguments[1])}"
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_holds(item) for item in arguments if item is not types.NoneType))
    names: dict[Any, str] = {
        str: "text",
        int: "whole number",
        Decimal: "number",
        bool: "`true` or `false`",
        types.NoneType: "`null`",
    }
    return names.get(kind, str(kind))


def _plain(kind: Any) -> Any:
    while typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    return kind


def _models(kind: Any) -> list[type[BaseModel]]:
    kind = _plain(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [model for item in typing.get_args(kind) for model in _models(item)] if typing.get_origin(kind) else []
