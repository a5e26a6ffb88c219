"""Subjects: built here and nowhere else (broker/contract/subjects.ts)."""

from __future__ import annotations

import re

from ..errors import InvalidRequestError
from .ids import check_id

POOL = "pool"
_VERB = re.compile(r"[a-z][a-z_]{0,31}")


def _verb(value: str) -> str:
    if _VERB.fullmatch(value) is None:
        raise InvalidRequestError(f"verb {value!r} is not valid", field="verb")
    return value


def sandbox_subject(tenant: str, sandbox: str, verb: str) -> str:
    return f"sbx.v1.{check_id('tenant', tenant)}.{check_id('sandbox', sandbox)}.{_verb(verb)}"


def pool_subject(tenant: str, verb: str) -> str:
    return f"pool.v1.{check_id('tenant', tenant)}.{_verb(verb)}"


def reply_prefix(tenant: str, responder: str, user: str) -> str:
    return f"rep.v1.{check_id('tenant', tenant)}.{check_id('responder', responder)}.{check_id('user', user)}"


def reply_subject(tenant: str, responder: str, user: str, token: str) -> str:
    return f"{reply_prefix(tenant, responder, user)}.{token}"


def reply_wildcard(tenant: str, user: str) -> str:
    return f"rep.v1.{check_id('tenant', tenant)}.*.{check_id('user', user)}.>"


def event_wildcard(tenant: str) -> str:
    return f"evt.v1.{check_id('tenant', tenant)}.>"


def run_event_wildcard(tenant: str, run: str, what: str) -> str:
    """Events of runs, where ``run``, ``what`` or both are ``*``."""
    of = run if run == "*" else check_id("run", run)
    return f"evt.v1.{check_id('tenant', tenant)}.run.{of}.{what if what == '*' else _verb(what)}"


def run_event_subject(tenant: str, run: str, what: str) -> str:
    return f"evt.v1.{check_id('tenant', tenant)}.run.{check_id('run', run)}.{_verb(what)}"
