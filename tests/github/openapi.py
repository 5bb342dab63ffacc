"""GitHub's description of its interface, and what of a request or an answer contradicts it.

Stricter than the description in one point: it lists the properties of a request's body without
closing the list, and a misspelt property would pass. Here what it does not list is refused.

Wider in one point: it does not declare every error of every operation (a status with too long a
description is answered 422, of which it says nothing). The general errors are therefore allowed
everywhere, their bodies held to the general schemas.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from openapi_schema_validator import OAS30Validator, oas30_format_checker
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT4

HOME = "urn:github"
GENERAL_ERRORS = {
    400: "bad_request",
    401: "requires_authentication",
    403: "forbidden",
    404: "not_found",
    410: "gone",
    422: "validation_failed",
    429: "forbidden",
}
GONE_WITH_A_FORK = (
    ("pull-request", "head", "repo"),
    ("pull-request-simple", "head", "repo"),
    ("workflow-run", "head_repository"),
)
"""Null once a fork is deleted, as GitHub's own payloads of events are described, and its answers
are not."""
LIMITS = ("maxLength", "maxItems")
"""Keywords whose breach GitHub answers with 422 rather than never seeing it from a sane client."""


@dataclass(frozen=True)
class Fault:
    """Something that contradicts the description."""

    where: str
    message: str
    limit: bool = False
    """Whether only a limit of size is broken."""

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


@dataclass(frozen=True)
class Operation:
    """A method on a path, as described."""

    id: str
    method: str
    template: str
    content: Mapping[str, Any]


class Description:
    """The whole description; schemas are compiled when first used."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = _meant(document)
        schemas = self._document["components"]["schemas"]
        for schema, *steps in GONE_WITH_A_FORK:
            part = schemas[schema]
            for step in steps:
                part = part["properties"][step]
            described = dict(part)
            part.clear()
            part["anyOf"] = [described, {"nullable": True, "enum": [None]}]
        resource = Resource.from_contents(self._document, default_specification=DRAFT4)
        self._registry: Registry[Any] = Registry().with_resource(HOME, resource)
        self._validators: dict[str, OAS30Validator] = {}

    def example(self, name: str) -> Any:
        """One of GitHub's examples of an answer."""
        return self._document["components"]["examples"][name]["value"]

    def find(self, method: str, path: str) -> tuple[Operation, dict[str, str]] | None:
        """The operation of a request and its raw path parameters; None where there is none."""
        segments = frozenset(path.split("/"))
        best: tuple[int, Operation, dict[str, str]] | None = None
        for template, literals in self._templates:
            operation = self._document["paths"][template].get(method.lower())
            if operation is None or not literals <= segments:
                continue
            match = self._pattern(template).fullmatch(path)
            if match and (best is None or len(literals) > best[0]):
                found = Operation(operation["operationId"], method, template, operation)
                best = (len(literals), found, match.groupdict())
        return (best[1], best[2]) if best else None

    def parameter_schemas(self, operation: Operation) -> dict[str, dict[str, Any]]:
        """The schemas of an operation's parameters, by name."""
        return {one["name"]: one["schema"] for one in self._parameters(operation)}

    def request_faults(
        self,
        operation: Operation,
        path: Mapping[str, str],
        query: Iterable[tuple[str, str]],
        body: Any,
    ) -> list[Fault]:
        """What is wrong with a request; `body` is None where it has none."""
        faults = []
        known = {(one["in"], one["name"]): one for one in self._parameters(operation)}
        given = [("path", name, text) for name, text in path.items()]
        given += [("query", name, text) for name, text in query]
        for place, name, text in given:
            parameter = known.get((place, name))
            if parameter is None:
                faults.append(Fault(f"{place} parameter {name}", "is not known"))
                continue
            faults += self._faults(
                f"{place} parameter {name}", parameter["schema"], typed(parameter["schema"], text)
            )
        for (place, name), parameter in known.items():
            if parameter.get("required") and (place, name) not in {one[:2] for one in given}:
                faults.append(Fault(f"{place} parameter {name}", "is missing"))
        return faults + self._body_faults(operation, body)

    def answer_faults(self, operation: Operation, status: int, body: Any) -> list[Fault]:
        """What is wrong with an answer; `body` is None where it has none."""
        declared = operation.content["responses"].get(str(status))
        if declared is None:
            if status not in GENERAL_ERRORS:
                return [Fault("status", f"{status} is not declared for {operation.id}")]
            declared = self._document["components"]["responses"][GENERAL_ERRORS[status]]
        schemas = self._resolved(declared).get("content", {})
        if not schemas:
            return [Fault("body", f"{status} has none")] if body is not None else []
        if "application/json" not in schemas:
            return []
        return self._faults("body", schemas["application/json"]["schema"], body)

    def _body_faults(self, operation: Operation, body: Any) -> list[Fault]:
        described = operation.content.get("requestBody")
        if described is None:
            return [Fault("body", f"{operation.id} takes none")] if body is not None else []
        described = self._resolved(described)
        if body is None:
            return [Fault("body", "is missing")] if described.get("required") else []
        return self._faults(
            "body", closed(described["content"]["application/json"]["schema"]), body
        )

    def _faults(self, where: str, schema: Mapping[str, Any], value: Any) -> list[Fault]:
        return [
            Fault(
                f"{where} at {error.json_path}",
                _shortened(error.message),
                limit=error.validator in LIMITS,
            )
            for error in self._validator(schema).iter_errors(value)
        ]

    def _validator(self, schema: Mapping[str, Any]) -> OAS30Validator:
        key = repr(schema)
        if key not in self._validators:
            self._validators[key] = OAS30Validator(
                _absolute(schema), registry=self._registry, format_checker=oas30_format_checker
            )
        return self._validators[key]

    def _parameters(self, operation: Operation) -> Iterator[dict[str, Any]]:
        for parameter in operation.content.get("parameters", []):
            yield self._resolved(parameter)

    def _resolved(self, part: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in part:
            found: Any = self._document
            for step in part["$ref"].removeprefix("#/").split("/"):
                found = found[step]
            part = found
        return part

    @cached_property
    def _templates(self) -> list[tuple[str, frozenset[str]]]:
        return [
            (template, frozenset(step for step in template.split("/") if "{" not in step))
            for template in self._document["paths"]
        ]

    @lru_cache(maxsize=256)  # noqa: B019  # One description lives as long as the tests.
    def _pattern(self, template: str) -> re.Pattern[str]:
        long = {
            parameter["name"]
            for operation in self._document["paths"][template].values()
            if isinstance(operation, dict)
            for parameter in map(self._resolved, operation.get("parameters", []))
            if parameter.get("x-multi-segment")
        }
        parts = re.split(r"\{(\w+)\}", template)
        text = ""
        for literal, name in zip(parts[::2], [*parts[1::2], ""], strict=True):
            text += re.escape(literal)
            text += f"(?P<{name}>{'.+' if name in long else '[^/]+'})" if name else ""
        return re.compile(text)


def typed(schema: Mapping[str, Any], text: str) -> Any:
    """A parameter's text as the type that its schema asks for; the text itself where it is not."""
    if schema.get("type") == "integer" and re.fullmatch(r"-?\d+", text):
        return int(text)
    if schema.get("type") == "boolean" and text in ("true", "false"):
        return text == "true"
    return text


def closed(schema: Any) -> Any:
    """A schema of a request that takes no property which it does not list."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        # The branches of a choice list a part of what the schema around them does.
        key: value
        if key in ("anyOf", "oneOf", "allOf") and "properties" in schema
        else closed(value)
        for key, value in schema.items()
        if key not in ("example", "examples", "enum")
    }
    if "enum" in schema:
        found["enum"] = schema["enum"]
    if isinstance(schema.get("properties"), dict):
        found.setdefault("additionalProperties", False)
    return found


def _absolute(part: Any) -> Any:
    """With references that hold wherever the schema is looked at."""
    if isinstance(part, list):
        return [_absolute(one) for one in part]
    if not isinstance(part, dict):
        return part
    return {
        key: f"{HOME}{value}" if key == "$ref" and isinstance(value, str) else _absolute(value)
        for key, value in part.items()
    }


def _meant(part: Any) -> Any:
    """The description as GitHub means it, where its words say something else.

    Its discriminators contradict the schemas they belong to: a folder's content is an array. A
    choice that is nullable does not name null among its values, which OpenAPI 3.0 asks for.
    """
    if isinstance(part, list):
        return [_meant(one) for one in part]
    if not isinstance(part, dict):
        return part
    found = {
        key: _meant(value)
        for key, value in part.items()
        if key != "discriminator" or "propertyName" not in value
    }
    if part.get("nullable") is True and isinstance(part.get("enum"), list):
        found["enum"] = [*part["enum"], None]
    return found


def _shortened(text: str) -> str:
    return text if len(text) < 400 else f"{text[:200]} ... {text[-200:]}"
