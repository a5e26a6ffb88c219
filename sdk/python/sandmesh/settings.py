"""Which mesh to connect to, and as whom: from arguments, the environment, or the file of the mesh that is up here."""

from __future__ import annotations

import contextlib
import json
import math
import os
import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from ._wire.credentials import Credentials, parse_credentials
from ._wire.ids import check_id, cut, shown
from ._wire.special import is_lone_pipe, read_special
from .errors import DeadlineError, FileError, InvalidRequestError, NoMeshError

_SCHEMES = ("nats", "tls")


@dataclass(frozen=True)
class Settings:
    urls: tuple[str, ...]
    credentials: Credentials = field(repr=False)
    tenant: str
    user: str
    # PEM; None: the CAs that the machine trusts.
    ca: str | None = None
    # The file that the credentials are from, where it may be read again; None: they came as text, or by a pipe.
    credentials_path: str | None = None

    def latest_credentials(self) -> Credentials:
        """Read anew: a file is replaced before, or soon after, what it held expires. The first ones where it cannot be
        read."""
        if self.credentials_path is None:
            return self.credentials
        try:
            content = _read_regular(self.credentials_path)
            return parse_credentials(content.decode(errors="replace"))
        except (OSError, ValueError, InvalidRequestError):
            return self.credentials

    @property
    def servers(self) -> str:
        """For an error's message."""
        return cut(", ".join(self.urls))


def mesh_file_path(env: Mapping[str, str] = os.environ) -> Path:
    """``$SANDMESH_HOME/mesh.json``: written by ``sandmesh up``, there only while that mesh is up. In the folder itself,
    whatever links lead there. Raises InvalidRequestError where its name is no UTF-8, as ``sandmesh up`` does."""
    base = env.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    home = os.path.realpath(env.get("SANDMESH_HOME") or os.path.join(base, "sandmesh"))
    try:
        home.encode()
    except UnicodeEncodeError:
        shown_home = os.fsencode(home).decode(errors="replace")
        raise InvalidRequestError(
            f"the mesh's folder {shown_home} must be named in UTF-8; SANDMESH_HOME names another", field="SANDMESH_HOME"
        ) from None
    return Path(home) / "mesh.json"


async def resolve_settings(
    url: str | None = None,
    credentials: str | os.PathLike[str] | None = None,
    tenant: str | None = None,
    user: str | None = None,
    env: Mapping[str, str] = os.environ,
    ca: str | os.PathLike[str] | None = None,
    until: float = math.inf,
) -> Settings:
    """``credentials`` is the path of a .creds file, or its text; ``ca`` that of a PEM file, or its text. Either may
    come by a pipe, which is waited for until ``until``, of the loop's time. Raises NoMeshError where nothing says which
    mesh, InvalidRequestError where what says it is malformed, DeadlineError."""
    for name, value in (("url", url), ("tenant", tenant), ("user", user)):
        if value is not None and not isinstance(value, str):
            raise InvalidRequestError(f"{name}: must be text", field=name)
    url = url or env.get("SANDMESH_URL") or None
    given = _text_of("credentials", credentials, env.get("SANDMESH_CREDS"))
    if url is None or given is None:
        from_file = _read_mesh_file(env)
        if from_file is not None:
            url, given = url or from_file[0], from_file[1] if given is None else given
    if url is None:
        raise NoMeshError(
            f"no mesh is up here (no {mesh_file_path(env)}): run `sandmesh up`, or set SANDMESH_URL and SANDMESH_CREDS"
        )
    if given is None:
        raise NoMeshError(f"no credentials for {cut(url)}: set SANDMESH_CREDS to the path of a .creds file")
    is_text = "-----BEGIN" in given
    parsed = parse_credentials(given if is_text else await _read(given, until))
    tenant, user = tenant or parsed.tag("tenant"), user or parsed.tag("user")
    if tenant is None or user is None:
        raise InvalidRequestError("the credential names no tenant and user: a user's is needed", field="credentials")
    urls = tuple(each.strip() for each in url.split(",") if each.strip())
    if not urls or not all(map(_is_server, urls)):
        raise InvalidRequestError(f"url: {shown(url)} is no address such as nats://host:4222", field="url")
    trusted = _text_of("ca", ca, env.get("SANDMESH_CA"))
    return Settings(
        urls,
        parsed,
        check_id("tenant", tenant),
        check_id("user", user),
        None if trusted is None else await _read_ca(trusted, until),
        None if is_text else _rereadable(given),
    )


def _rereadable(path: str) -> str | None:
    """Whatever folder the program is in by then; None for a pipe, of which nothing comes twice."""
    return os.path.abspath(path) if os.path.isfile(path) else None


_WHAT = {"credentials": "a .creds file", "ca": "a file of PEM certificates"}


def _text_of(name: str, value: object, otherwise: str | None) -> str | None:
    """A path or the text itself, where none is given the environment's; raises InvalidRequestError where it is
    neither."""
    if value is None:
        return otherwise or None
    given = str(value) if isinstance(value, os.PathLike) else value
    if not isinstance(given, str) or "\0" in given or (not given.isprintable() and "-----BEGIN" not in given):
        raise InvalidRequestError(f"{name}: must be the path of {_WHAT[name]}, or its text", field=name)
    return given


# What is larger is no such file, and perhaps has no end.
_CREDENTIALS_KIB = 64
_CA_KIB = 1024


async def _read_text(path: str, name: str, at_most_kib: int, until: float) -> str:
    """Once, to its end, so that it may be a pipe, which keeps nothing else from running. What is no UTF-8 is replaced:
    only the blocks count. Raises FileError, DeadlineError, and InvalidRequestError where it is too large."""
    at, content = os.fsencode(path), bytearray()
    try:
        async with contextlib.aclosing(read_special(at, is_lone_pipe(at), until)) as parts:
            async for part in parts:
                content += part
                if len(content) > at_most_kib * 1024:
                    raise InvalidRequestError(f"{name}: {cut(path)} is larger than {at_most_kib} KiB", field=name)
    except DeadlineError as error:
        raise DeadlineError(f"{name}: {error}", field=name) from error
    return content.decode(errors="replace")


async def _read_ca(given: str, until: float) -> str:
    text = given
    if "-----BEGIN" not in given:
        try:
            text = await _read_text(given, "ca", _CA_KIB, until)
        except FileError as error:
            raise InvalidRequestError(f"ca: the file {cut(given)} cannot be read", field="ca") from error
    # ssl takes no other, not even in what stands around the blocks.
    text = text.encode("ascii", "replace").decode()
    try:
        # To ``create_default_context`` an empty text is none, and the system's own CAs are trusted.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidRequestError(
            "ca: must be the path of a file of PEM certificates, or its text", field="ca"
        ) from error
    return text


def _is_server(url: str) -> bool:
    try:
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        return parts.scheme in _SCHEMES and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def _read_regular(path: str | Path) -> bytes:
    """A file that is no larger than credentials may be; a fifo is not waited for. Raises OSError, and ValueError with
    what it is instead."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("no regular file")
        content = file.read(_CREDENTIALS_KIB * 1024 + 1)
    if len(content) > _CREDENTIALS_KIB * 1024:
        raise ValueError(f"larger than {_CREDENTIALS_KIB} KiB")
    return content


def _read_mesh_file(env: Mapping[str, str]) -> tuple[str, str] | None:
    path = mesh_file_path(env)
    try:
        content = _read_regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NoMeshError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise NoMeshError(f"{path} cannot be read: it is {error}") from None
    try:
        value = json.loads(content.decode(errors="replace"))
        url, credentials = value["url"], value["credentials"]
        if not (isinstance(url, str) and url and isinstance(credentials, str) and credentials) or "\0" in credentials:
            raise ValueError("url and credentials must be text")
        return url, credentials
    except (ValueError, KeyError, TypeError) as error:
        raise NoMeshError(f"{path} is damaged: run `sandmesh down` and `sandmesh up`") from error


async def _read(path: str, until: float) -> str:
    try:
        return await _read_text(path, "credentials", _CREDENTIALS_KIB, until)
    except FileError as error:
        message = f"credentials: the file {cut(path)} cannot be read"
        raise InvalidRequestError(message, field="credentials") from error
