"""A chat template as a program: compiled by Jinja, in its sandbox, with the settings, tags and names of transformers.

transformers lets a template run as long as it likes. Here it ends when it has taken `SECONDS` of a processor, which is
looked at in every pass of a loop and at every call and filter, or when an operation makes a text of more than `CHARACTERS`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from pliant.errors import ArtifactError

SECONDS = 2.0  # of a processor, for one conversation
CHARACTERS = 1 << 24  # of one conversation's text, and of any other; items of a list
BITS = 4096  # of a product or power

_UNTIL: ContextVar[float] = ContextVar("until")


class TemplateRefusalError(TemplateError):
    """A template refuses a conversation by `raise_exception`."""


class TemplateLimitError(TemplateError):
    """A template takes more time or room than it may."""


class ChatProgram:
    """The compiled template. Raises `ArtifactError` for one that cannot be parsed."""

    def __init__(self, source: str) -> None:
        environment = _Environment()
        try:
            tree = environment.parse(source)
            self.names = frozenset(node.name for node in tree.find_all(nodes.Name))
            self._template = environment.from_string(_Limiter().visit(tree))
        except TemplateError as error:
            raise ArtifactError(f"the chat template cannot be read: {error}") from error

    def run(self, variables: Mapping[str, Any]) -> str:
        """Return the text. Raises `TemplateRefusalError`, `TemplateLimitError`, and whatever else a program can."""
        pieces, size = [], 0
        token = _UNTIL.set(time.thread_time() + SECONDS)
        try:
            for piece in self._template.generate(variables):
                pieces.append(piece)
                size += len(piece)
                if size > CHARACTERS:
                    raise TemplateLimitError(f"it makes a text of more than {CHARACTERS} characters")
        finally:
            _UNTIL.reset(token)
        return "".join(pieces)


class _Limiter(NodeTransformer):
    """Has loops look at the time, and bounds what ~ and blocks make; `_Environment` does so for all else."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802  # as in Jinja
        look = nodes.Call(nodes.EnvironmentAttribute("look"), [], [], None, None, lineno=node.lineno)
        node.body.insert(0, nodes.ExprStmt(look, lineno=node.lineno))
        return self.generic_visit(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        return nodes.Filter(self.generic_visit(node), "bounded", [], [], None, None, lineno=node.lineno)

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.Node:  # noqa: N802
        node.filter = nodes.Filter(node.filter, "bounded", [], [], None, None, lineno=node.lineno)
        return self.generic_visit(node)


def _look() -> None:
    if time.thread_time() > _UNTIL.get():
        raise TemplateLimitError(f"it takes more than {SECONDS:g} s of a processor")


def _bounded(value: Any) -> Any:
    if isinstance(value, str | list | tuple) and len(value) > CHARACTERS:
        raise TemplateLimitError(f"it makes a text of more than {CHARACTERS} characters")
    return value


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "**"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self.filters.update(tojson=_tojson, bounded=_bounded)
        self.filters = {name: _looking(filter) for name, filter in self.filters.items()}
        self.globals["raise_exception"] = _raise
        self.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        self.globals["dict"] = _Dict()
        self.globals["namespace"] = _PublicNamespace

    def look(self) -> None:
        """Do nothing: `call` has looked at the time."""

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805  # as in Jinja
        _look()
        return _bounded(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator != "+" and _grows(operator, left, right):
            raise TemplateLimitError(f"it makes too large a value with {operator}")
        return _bounded(super().call_binop(context, operator, left, right))


class _Generation(Extension):
    """The tag {% generation %}, which marks what an assistant says for training and leaves it as it is."""

    tags = {"generation"}  # noqa: RUF012  # as in Jinja

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller: Callable[[], str]) -> str:
        return caller()


class _Dict:
    """`dict` without what the class can do to values of others."""

    fromkeys = staticmethod(dict.fromkeys)

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)


class _PublicNamespace(Namespace):
    """A namespace without names that begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # `self` may be one of the names
        values = dict(*args[1:], **kwargs)
        for name in values:
            _check_name(name)
        Namespace.__init__(args[0], values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"{name} begins with an underscore")


def _looking(filter: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that looks at the time first, and whose result is bounded."""

    @wraps(filter)
    def looking(*args: Any, **kwargs: Any) -> Any:
        _look()
        return _bounded(filter(*args, **kwargs))

    return looking


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> NoReturn:
    raise TemplateRefusalError(message or "it says no reason")


def _grows(operator: str, left: Any, right: Any) -> bool:
    """Whether a product or power is out of bounds."""
    if isinstance(left, int) and isinstance(right, int):
        return (left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()) > BITS
    count, repeated = (left, right) if isinstance(left, int) else (right, left)
    return isinstance(count, int) and hasattr(repeated, "__len__") and len(repeated) * count > CHARACTERS
