"""What a sandbox shall be, as users write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ._wire.ids import cut
from .errors import InvalidRequestError
from .units import Size, size_bytes


class Volume(TypedDict):
    """Read-only data."""

    name: str
    source: str
    mount_path: str


class Sidecar(TypedDict, total=False):
    name: str
    image: str
    command: Sequence[str]
    env: Mapping[str, str | None]


class SpecOptions(TypedDict, total=False):
    image_pull_secrets: Sequence[str]
    """Names of credentials for private registries."""
    cpu: float
    """Cores, 0.01 to 1024."""
    memory: Size
    """Limit; at least 16 MiB."""
    disk: Size
    """Limit of what may be written; at least 1 MiB."""
    pids: int
    """Processes and threads at once, at least 16."""
    env: Mapping[str, str | None]
    """Added to the image's environment; None removes a variable."""
    user: str
    """Name or uid, optionally ``:group``; default the image's."""
    cwd: str
    """Working folder of commands; default the image's."""
    network: str
    """``none``, ``host`` or ``policy:<name>``."""
    volumes: Sequence[Volume]
    sidecars: Sequence[Sidecar]
    extended_resources: Mapping[str, int]
    entrypoint: bool
    """Also start the image's own entrypoint."""
    template: str
    """Warm stock to take it from."""
    provider: str
    """Which of the pool's providers; default by its weights, of those that can."""
    labels: Mapping[str, str]


_RENAMED = {"memory": "memory_bytes", "disk": "disk_bytes"}


def spec_of(image: str, options: SpecOptions) -> dict[str, Any]:
    """As it is sent; where it is asked with, its values are checked. Raises InvalidRequestError."""
    spec: dict[str, Any] = {"image": image}
    for name, value in options.items():
        if name not in SpecOptions.__annotations__:
            unknown = cut(name, 60)
            raise InvalidRequestError(f"{unknown}: a sandbox has no such option", field=unknown)
        if value is None:
            continue
        if name in _RENAMED:
            spec[_RENAMED[name]] = size_bytes(value, name)  # type: ignore[arg-type]
        elif isinstance(value, Mapping):
            spec[name] = dict(value)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            spec[name] = [dict(each) if isinstance(each, Mapping) else each for each in value]
        else:
            spec[name] = value
    return spec
