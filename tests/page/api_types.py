"""Writes what the server answers as TypeScript, so that the page's JavaScript is checked against the server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from core_sdk._interfaces.server.openapi import describe
from core_sdk._interfaces.server.routes.table import ROUTES

Schema = Mapping[str, Any]

_HEAD = """\
/** Made from the server's OpenAPI document by tests/page/api_types.py. */

/** A number of a trial: in JSON, one that is not finite is text. */
export type Metric = number | "NaN" | "Infinity" | "-Infinity";
type Part = string | number;

/** An address, and what the server answers there. */
export type Address<Answer> = string & { readonly answer: Answer };

/** The answers of the routes whose path it is. */
export type RouteAt<Routes extends Route, Path> =
  Routes extends unknown ? (Path extends Routes["path"] ? Routes : never) : never;
/** Settings of an address are text, and those that are empty are left out. */
export type QueryOf<Path> = Loose<RouteAt<Question, Path>["query"]>;
export type BodyOf<Path> = RouteAt<Action, Path>["body"];
type Loose<Query> = { [Name in keyof Query]?: Query[Name] | string | readonly string[] | null };
type Route = { path: readonly Part[]; query: object; body: object; answer: unknown };
"""
_NUMBERS = [{"type": "integer"}, {"type": "number"}]
_PLAIN = {"integer": "number", "number": "number", "string": "string", "boolean": "boolean", "null": "null"}


def api_types() -> str:
    """Returns a type for each schema, and the unions `Question` and `Action` of the paths and types of all routes."""
    document = describe(ROUTES, "")
    schemas = document["components"]["schemas"]
    questions: list[str] = []
    actions: list[str] = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            (questions if method == "get" else actions).append(_route(path, operation))
    # It gives no record, and so is none of the routes.
    questions.append('{ path: readonly ["ticket"]; query: {}; body: {}; answer: { ticket: string } }')
    return "\n".join(
        [
            _HEAD,
            *(f"export type {name} = {_type(schema)};" for name, schema in schemas.items()),
            f"export type Question =\n{_union(questions)};",
            f"export type Action =\n{_union(actions)};",
            "",
        ]
    )


def _union(members: Iterable[str]) -> str:
    return "\n".join(f"  | {member}" for member in members)


def _route(path: str, operation: Schema) -> str:
    parts = ["Part" if part.startswith("{") else json.dumps(part) for part in path.split("/")[1:]]
    query = [
        f"{json.dumps(one['name'])}{'' if one['required'] else '?'}: {_type(one['schema'])}"
        for one in operation["parameters"]
        if one["in"] == "query"
    ]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    answer = operation["responses"]["200"]["content"].get("application/json", {}).get("schema")
    return (
        f"{{ path: readonly [{', '.join(parts)}]; query: {{ {'; '.join(query)} }}; "
        f"body: {_type(body) if body else '{}'}; answer: {_type(answer) if answer else 'never'} }}"
    )


def _type(schema: Schema) -> str:
    match schema:
        case {"$ref": name}:
            return str(name).rpartition("/")[2]
        case {"enum": values}:
            return " | ".join(json.dumps(value) for value in values)
        case {"anyOf": [*members]}:
            others = [one for one in members if one not in _NUMBERS]
            is_metric = len(members) - len(others) == len(_NUMBERS)
            return " | ".join([*(["Metric"] if is_metric else []), *map(_type, others if is_metric else members)])
        case {"type": "array", "prefixItems": [*items]}:
            return f"[{', '.join(map(_type, items))}]"
        case {"type": "array"}:
            return f"({_type(schema.get('items', {}))})[]"
        case {"type": "object", "properties": properties}:
            return _object(properties, schema)
        case {"type": "object"}:
            return f"Record<string, {_type(schema.get('additionalProperties', {}))}>"
        case {"type": str(name)}:
            return _PLAIN[name]
        case _:
            return "unknown"


def _object(properties: Schema, schema: Schema) -> str:
    # What is sent to the server may leave defaults out; what it answers always has every field.
    is_sent = schema.get("additionalProperties") is False
    required = schema.get("required", []) if is_sent else properties
    fields = [
        f"{json.dumps(name)}{'' if name in required else '?'}: {_type(kind)}" for name, kind in properties.items()
    ]
    return f"{{ {'; '.join(fields)} }}"
