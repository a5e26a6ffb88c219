"""Credentials: a .creds file's JWT and Ed25519 seed (nkeys, NATS ADR-14), and the signature of the server's nonce."""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ..errors import InvalidRequestError

_BLOCK = re.compile(r"-{3,}BEGIN ([A-Z ]+)-{3,}\s+(\S+)\s+-{3,}END \1-{3,}")
_MAX_CHARACTERS = 128 * 1024
_SEED, _USER = 18 << 3, 20 << 3
_BAD_SEED = "seed is not a user's nkey seed (it starts with SU)"


@dataclass(frozen=True)
class Credentials:
    jwt: str
    public_key: str
    claims: dict[str, Any]
    key: Ed25519PrivateKey = field(repr=False)

    def sign(self, nonce: str) -> bytes:
        """What the server's nonce is answered with: base64url without padding."""
        return base64.urlsafe_b64encode(self.key.sign(nonce.encode())).rstrip(b"=")

    def tag(self, name: str) -> str | None:
        """A tag of the JWT, such as ``tenant`` or ``user``."""
        tags = self.claims["nats"].get("tags")
        for each in tags if isinstance(tags, list) else []:
            if isinstance(each, str) and each.startswith(f"{name}:"):
                return each[len(name) + 1 :]
        return None


def parse_credentials(text: str) -> Credentials:
    """Raises InvalidRequestError with field ``credentials``, ``jwt`` or ``seed``; no message quotes a secret."""
    if len(text) > _MAX_CHARACTERS:
        raise InvalidRequestError("credentials are not a .creds file", field="credentials")
    blocks = {label: content for label, content in _BLOCK.findall(text)}
    for label in ("NATS USER JWT", "USER NKEY SEED"):
        if label not in blocks:
            raise InvalidRequestError(f"credentials have no block {label}", field="credentials")
    claims = _claims(blocks["NATS USER JWT"])
    key = _key_of(blocks["USER NKEY SEED"])
    public_key = _public_key(key)
    if claims.get("sub") != public_key:
        raise InvalidRequestError("seed is not of the key that the jwt is about", field="seed")
    return Credentials(jwt=blocks["NATS USER JWT"], public_key=public_key, claims=claims, key=key)


def _claims(jwt: str) -> dict[str, Any]:
    parts = jwt.split(".")
    try:
        if len(parts) != 3:
            raise ValueError("it has not three parts")
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        if not isinstance(claims["nats"], dict) or claims["nats"].get("type") != "user":
            raise ValueError("it is not about a user")
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidRequestError(f"jwt is not a NATS user's JWT: {error}", field="jwt") from None
    checked: dict[str, Any] = claims
    return checked


def _key_of(seed: str) -> Ed25519PrivateKey:
    try:
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
    except (binascii.Error, ValueError):
        raise InvalidRequestError(_BAD_SEED, field="seed") from None
    if len(raw) != 36:
        raise InvalidRequestError(_BAD_SEED, field="seed")
    body, checksum = raw[:-2], int.from_bytes(raw[-2:], "little")
    if binascii.crc_hqx(body, 0) != checksum:
        raise InvalidRequestError("seed is damaged: its checksum does not match", field="seed")
    kind = (body[0] & 7) << 5 | body[1] >> 3
    if body[0] & 0xF8 != _SEED or kind != _USER:
        raise InvalidRequestError(_BAD_SEED, field="seed")
    return Ed25519PrivateKey.from_private_bytes(body[2:])


def _public_key(key: Ed25519PrivateKey) -> str:
    body = bytes([_USER]) + key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    checksum = binascii.crc_hqx(body, 0).to_bytes(2, "little")
    return base64.b32encode(body + checksum).decode().rstrip("=")
