"""The description of all routes, made from their types."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable
from typing import Any

import msgspec
from starlette.responses import Response

from core_sdk._ground.version import __version__
from core_sdk._interfaces.server.errors import Failure
from core_sdk._interfaces.server.route import NoQuery, Route
from core_sdk._interfaces.server.security import ACTION_HEADER

_REF = "#/components/schemas/{name}"


@functools.cache
def describe(routes: tuple[Route, ...], prefix: str) -> dict[str, Any]:
    """Returns an OpenAPI document. In answers, a number that is not finite is the string NaN, Infinity or -Infinity."""
    types = [Failure, *(kind for route in routes for kind in _types(route))]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    of_type = dict(zip(map(repr, types), schemas, strict=True))
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(f"{prefix}{route.path}", {})[route.method.lower()] = _operation(route, of_type, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Core SDK", "version": __version__, "summary": "The records of a home."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _types(route: Route) -> Iterable[Any]:
    hints = route.hints
    found = [route.query, *route.path_types.values(), *([hints["body"]] if "body" in hints else [])]
    return found if _is_file(hints["return"]) else [*found, hints["return"]]


def _is_file(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, Response)


def _operation(route: Route, of_type: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    hints = route.hints
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": of_type[repr(kind)]}
        for name, kind in route.path_types.items()
    ]
    if route.query is not NoQuery:
        query = components[route.query.__name__]
        parameters += [
            {"name": name, "in": "query", "required": name in query.get("required", []), "schema": schema}
            for name, schema in query["properties"].items()
        ]
    if route.method != "GET":
        header = {"name": ACTION_HEADER, "in": "header", "required": True, "schema": {"const": "1"}}
        parameters.append(header)
    answer = hints["return"]
    content = (
        {"application/octet-stream": {}}
        if _is_file(answer)
        else {"application/json": {"schema": of_type[repr(answer)]}}
    )
    operation: dict[str, Any] = {
        "summary": route.summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "The answer.", "content": content},
            "default": {
                "description": "Why there is none.",
                "content": {"application/json": {"schema": of_type[repr(Failure)]}},
            },
        },
    }
    if "body" in hints:
        operation["requestBody"] = {"content": {"application/json": {"schema": of_type[repr(hints["body"])]}}}
    return operation
