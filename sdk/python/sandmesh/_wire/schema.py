"""Checks messages by the contract's schemas, which broker/contract/vectors.ts writes to contract.json. A schema is
compiled to nested functions once, at its first use."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import sys
from collections.abc import Callable
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from ..errors import InvalidRequestError
from .ids import cut, shown

Check = Callable[[Any], Any]
"""Returns the checked value, with defaults filled in; raises Bad."""
Schema = dict[str, Any]
# Where the contract names no bound: what a number of every language can be.
_GREATEST = sys.float_info.max


class Bad(Exception):
    """Where and why a value is refused; the path grows from the inside out."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.path: list[str] = []

    def under(self, key: str) -> Bad:
        self.path.insert(0, key)
        return self


@lru_cache(maxsize=1)
def contract() -> dict[str, Any]:
    text = resources.files("sandmesh").joinpath("contract.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def limit(name: str) -> int:
    return int(contract()["limits"][name])


def check(message: str, value: Any) -> dict[str, Any]:
    """Checks ``value`` as the named message; raises InvalidRequestError that names the first field at fault."""
    try:
        checked: dict[str, Any] = compiled(message)(value)
        return checked
    except Bad as bad:
        field = ".".join(bad.path) or "body"
        raise InvalidRequestError(f"{field}: {bad.why}", field=field) from None


@cache
def compiled(message: str) -> Check:
    return compile_schema(contract()["messages"][message])


def compile_schema(schema: Schema) -> Check:
    check = _shape(schema)
    rules = [_RULES[rule] for rule in schema.get("checks", ())]
    return _ruled(check, rules) if rules else check


def _ruled(check: Check, rules: list[Callable[[Any], None]]) -> Check:
    def run(value: Any) -> Any:
        checked = check(value)
        for rule in rules:
            rule(checked)
        return checked

    return run


def _shape(schema: Schema) -> Check:
    if "oneOf" in schema:
        return _variant(schema["oneOf"])
    if "anyOf" in schema:
        return _union([compile_schema(each) for each in schema["anyOf"]])
    if schema.get("format") == "binary":
        return _binary
    if "const" in schema:
        return _among([schema["const"]])
    if "enum" in schema:
        return _among(schema["enum"])
    make = _TYPES[schema["type"]]
    return make(schema)


def _among(allowed: list[Any]) -> Check:
    kinds = {type(each) for each in allowed}
    words = " or ".join(map(repr, allowed))

    def run(value: Any) -> Any:
        # A float that is whole is the same number to every language but this one.
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) not in kinds or value not in allowed:
            raise Bad(f"must be {words}")
        return value

    return run


def _binary(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str) and len(value) % 4 == 0:
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            pass
    raise Bad("must be binary (base64 in JSON)")


def _string(schema: Schema) -> Check:
    at_least, at_most = schema.get("minLength", 0), schema.get("maxLength")
    pattern = re.compile(re.sub(r"\$$", r"\\Z", schema["pattern"])) if "pattern" in schema else None

    def run(value: Any) -> str:
        if not isinstance(value, str):
            raise Bad("must be a string")
        if not value.isascii() and not _is_unicode(value):
            raise Bad("must not contain half of a surrogate pair")
        if len(value) < at_least:
            raise Bad("must not be empty")
        # The contract counts UTF-16 units, of which a character has at most two.
        if at_most is not None and 2 * len(value) > at_most and len(value.encode("utf-16-le")) // 2 > at_most:
            raise Bad(f"must be at most {at_most} characters")
        if pattern is not None and pattern.search(value) is None:
            raise Bad("must not contain NUL" if "\0" in value else f"must match {schema['pattern']}")
        return value

    return run


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _number(schema: Schema) -> Check:
    whole = schema["type"] == "integer"
    low, high = schema.get("minimum", -_GREATEST), schema.get("maximum", _GREATEST)

    def run(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            raise Bad("must be a number")
        if isinstance(value, float) and whole:
            if not value.is_integer():
                raise Bad("must be a whole number")
            value = int(value)
        if value < low:
            raise Bad(f"must be at least {low}")
        if value > high:
            raise Bad(f"must be at most {high}")
        # A whole number of more than 64 bits has no other form on the wire.
        return float(value) if abs(value) >= 2**63 else value

    return run


def _boolean(_schema: Schema) -> Check:
    return _among([True, False])


def _null(_schema: Schema) -> Check:
    return _among([None])


def _array(schema: Schema) -> Check:
    item = compile_schema(schema["items"])
    at_least, at_most = schema.get("minItems", 0), schema.get("maxItems", math.inf)

    def run(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise Bad("must be a list")
        out = []
        for i, each in enumerate(value):
            try:
                out.append(item(each))
            except Bad as bad:
                raise bad.under(str(i)) from None
        if len(out) < at_least:
            raise Bad("must not be empty")
        if len(out) > at_most:
            raise Bad(f"must have at most {at_most} entries")
        return out

    return run


def _object(schema: Schema) -> Check:
    if "additionalProperties" in schema:
        return _map(schema)
    required = set(schema.get("required", ()))
    fields = [
        (name, compile_schema(each), name in required, each.get("default"))
        for name, each in schema["properties"].items()
    ]

    def run(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Bad("must be a map")
        out = {}
        for name, field, needed, default in fields:
            if name in value:
                try:
                    out[name] = field(value[name])
                except Bad as bad:
                    raise bad.under(name) from None
            elif needed:
                raise Bad("is missing").under(name)
            elif default is not None:
                out[name] = default
        return out

    return run


def _map(schema: Schema) -> Check:
    name = compile_schema(schema["propertyNames"])
    inner = compile_schema(schema["additionalProperties"])

    def run(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Bad("must be a map")
        out = {}
        for key, each in value.items():
            try:
                out[name(key)] = inner(each)
            except Bad as bad:
                raise bad.under(cut(key, 60) if isinstance(key, str) else shown(key)) from None
        return out

    return run


def _union(options: list[Check]) -> Check:
    def run(value: Any) -> Any:
        whys = []
        for option in options:
            try:
                return option(value)
            except Bad as bad:
                whys.append(bad.why)
        raise Bad(" or ".join(dict.fromkeys(whys)))

    return run


def _variant(schemas: list[Schema]) -> Check:
    options = {each["properties"]["type"]["const"]: compile_schema(each) for each in schemas}

    def run(value: Any) -> Any:
        if not isinstance(value, dict):
            raise Bad("must be a map")
        kind = value.get("type")
        option = options.get(kind) if isinstance(kind, str) else None
        if option is None:
            raise Bad(f"must be one of {', '.join(options)}").under("type")
        return option(value)

    return run


def _exactly_one(*names: str) -> Callable[[dict[str, Any]], None]:
    def rule(value: dict[str, Any]) -> None:
        if sum(name in value for name in names) != 1:
            raise Bad(f"exactly one of {', '.join(names)} is needed")

    return rule


def _session_takes_shell(value: dict[str, Any]) -> None:
    if "session" in value and "shell" not in value:
        raise Bad("a session takes a shell line")


def _mount_paths_differ(volumes: list[dict[str, Any]]) -> None:
    # /a and /a/ are one.
    paths = {re.sub("/+(?=/|$)", "", volume["mount_path"]) for volume in volumes}
    if len(paths) != len(volumes):
        raise Bad("two volumes have the same mount_path")


_BELOW = "must be of the path below the folder: not absolute, and without the names `.` and `..`"
_NOT_BELOW = re.compile(r"^!*/|(^!*|/)\.{1,2}(/|\Z)")


def _below(pattern: str) -> None:
    if _NOT_BELOW.search(pattern):
        raise Bad(_BELOW)


_ONE_LINE = "must not contain a line end"


def _one_line(text: str) -> None:
    if "\n" in text:
        raise Bad(_ONE_LINE)


_RULES: dict[str, Callable[[Any], None]] = {
    "exactly one of argv, shell and port is needed": _exactly_one("argv", "shell", "port"),
    "a session takes a shell line": _session_takes_shell,
    "name exactly one of sandbox, lease and run": _exactly_one("sandbox", "lease", "run"),
    "two volumes have the same mount_path": _mount_paths_differ,
    _BELOW: _below,
    _ONE_LINE: _one_line,
}

_TYPES: dict[str, Callable[[Schema], Check]] = {
    "string": _string,
    "integer": _number,
    "number": _number,
    "boolean": _boolean,
    "null": _null,
    "array": _array,
    "object": _object,
}
