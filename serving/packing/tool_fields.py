"""Reads the tools of a request, which of them must be called, and messages with calls and results."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pliant.errors import InputError
from pliant.packing.tools import Tool
from serving.http.api_errors import ApiError
from serving.http.json_body import shorten
from serving.packing.values import flag

MAX_TOOLS = 128
CHOICES = ("none", "auto", "required")
NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
TOOLS_CHARACTERS = 256 * 1024  # of all tools as JSON


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """The tools that an answer may call. `forced`: it must be calls of them, and nothing else."""

    tools: tuple[Tool, ...]
    callable: tuple[Tool, ...]  # those that it may call
    forced: bool
    parallel: bool  # it may call several


NO_TOOLS = ToolRequest((), (), forced=False, parallel=True)


def read_tools(fields: Mapping[str, Any]) -> ToolRequest:
    """Return the tools of a request. Raises `InputError` and `ApiError`."""
    tools = _tools(fields.get("tools", []))
    choice, parallel = fields.get("tool_choice", "auto"), flag(fields, "parallel_tool_calls", True)
    if isinstance(choice, str) and choice not in CHOICES:
        raise InputError(
            "tool_choice", shorten(choice), f"one of {', '.join(CHOICES)}, or an object that names a function"
        )
    if not isinstance(choice, str):
        named = _named(choice, tools)
        return ToolRequest(tools, (named,), True, False)
    if choice == "required" and not tools:
        raise InputError("tool_choice", "required", "left out without tools")
    return NO_TOOLS if choice == "none" else ToolRequest(tools, tools, choice == "required", parallel)


def read_calls(name: str, value: object) -> list[Mapping[str, Any]]:
    """Return the calls of an assistant's message, with their arguments as objects. Raises `InputError`."""
    if not isinstance(value, list):
        raise InputError(name, shorten(value), "a list of calls")
    return [_call(f"{name}[{index}]", item) for index, item in enumerate(value)]


def _tools(value: object) -> tuple[Tool, ...]:
    if not isinstance(value, list):
        raise InputError("tools", shorten(value), "a list of tools")
    if len(value) > MAX_TOOLS:
        raise InputError("tools", f"a list of {len(value)}", f"a list of at most {MAX_TOOLS}")
    tools = tuple(_tool(f"tools[{index}]", item) for index, item in enumerate(value))
    names = [tool.name for tool in tools]
    if len(set(names)) < len(names):
        raise InputError("tools", "two functions of one name", "functions of different names")
    try:
        size = sum(len(json.dumps(tool.to_dict())) for tool in tools)
    except (RecursionError, ValueError):
        raise InputError("tools", "nested too deep", "tools of reasonable depth") from None
    if size > TOOLS_CHARACTERS:
        raise InputError("tools", f"{size} characters", f"at most {TOOLS_CHARACTERS} characters")
    return tools


def _tool(name: str, value: object) -> Tool:
    if not isinstance(value, dict):
        raise InputError(name, shorten(value), "an object with type and function")
    if value.get("type", "function") != "function":
        raise ApiError(
            400, "unsupported_parameter", f"{name}.type is not supported unless it is function", f"{name}.type"
        )
    function = value.get("function")
    if not isinstance(function, dict):
        raise InputError(f"{name}.function", shorten(function), "an object with a name")
    description, parameters = function.get("description") or "", function.get("parameters") or {}
    if not isinstance(description, str):
        raise InputError(f"{name}.function.description", shorten(description), "a text")
    if not isinstance(parameters, dict):
        raise InputError(f"{name}.function.parameters", shorten(parameters), "a JSON schema, which is an object")
    return Tool(_function_name(f"{name}.function.name", function.get("name")), description, parameters, value)


def _function_name(name: str, value: object) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise InputError(name, shorten(value), "up to 64 letters, digits, underscores, dots and dashes")
    return value


def _named(choice: object, tools: Sequence[Tool]) -> Tool:
    function = choice.get("function") if isinstance(choice, dict) and choice.get("type") == "function" else None
    wanted = function.get("name") if isinstance(function, dict) else None
    for tool in tools:
        if tool.name == wanted:
            return tool
    raise InputError("tool_choice", shorten(choice), "an object that names one of the tools")


def _call(name: str, value: object) -> Mapping[str, Any]:
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(function, dict):
        raise InputError(name, shorten(value), "an object with id, type and function")
    id = value.get("id", "")
    if not isinstance(id, str):
        raise InputError(f"{name}.id", shorten(id), "a text")
    _function_name(f"{name}.function.name", function.get("name"))
    arguments = _arguments(f"{name}.function.arguments", function.get("arguments"))
    return {**value, "function": {**function, "arguments": arguments}}


def _arguments(name: str, value: object) -> Mapping[str, Any]:
    """Return the arguments of a call, which come as JSON in a text, as chat templates expect them."""
    try:
        arguments = json.loads(value) if isinstance(value, str) and value else value or {}
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise InputError(name, shorten(value), "a text with a JSON object")
    return arguments
