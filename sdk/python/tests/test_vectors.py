"""The contract in bytes: what broker/contract/vectors.ts writes, every SDK must read alike."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sandmesh import errors
from sandmesh._wire import codec, ids, schema, subjects
from sandmesh._wire.credentials import parse_credentials
from sandmesh.outcomes import outcome_from_wire, shell_status

VECTORS = Path(__file__).parents[3] / "broker" / "contract" / "vectors"


def read(name: str) -> Any:
    return json.loads((VECTORS / f"{name}.json").read_text("utf-8"))


def untag(value: Any) -> Any:
    """JSON has no binary: bytes stand as {"$bytes": hex}."""
    if isinstance(value, dict):
        if set(value) == {"$bytes"}:
            return bytes.fromhex(value["$bytes"])
        return {key: untag(inner) for key, inner in value.items()}
    return [untag(inner) for inner in value] if isinstance(value, list) else value


MESSAGES = read("messages")


@pytest.mark.parametrize("message", MESSAGES)
def test_every_message_is_read_and_refused_as_by_typescript(message: str) -> None:
    for vector in MESSAGES[message]["valid"]:
        expected = untag(vector["parsed"])
        assert schema.check(message, codec.decode(bytes.fromhex(vector["msgpack"]))) == expected, vector["name"]
        assert schema.check(message, codec.decode(vector["json"].encode())) == expected, vector["name"]
        # What this SDK encodes must mean the same, though integers above 32 bits are other bytes.
        assert schema.check(message, codec.decode(codec.encode(expected))) == expected, vector["name"]
    for vector in MESSAGES[message]["invalid"]:
        with pytest.raises(errors.SandmeshError) as caught:
            schema.check(message, codec.decode(bytes.fromhex(vector["msgpack"])))
        assert (caught.value.code, caught.value.field) == (vector["code"], vector["field"]), vector["name"]


def test_every_message_of_the_contract_has_vectors() -> None:
    assert set(MESSAGES) == set(schema.contract()["messages"])
    assert len(MESSAGES) > 60


def test_a_body_that_is_no_map_is_refused_whatever_it_claims_to_be() -> None:
    for vector in read("bodies"):
        body = bytes.fromhex(vector["body"])
        if "code" in vector:
            with pytest.raises(errors.InvalidRequestError) as caught:
                codec.decode(body)
            assert caught.value.field == vector["field"], vector["name"]
        else:
            assert codec.decode(body) == vector["decoded"], vector["name"]


def test_ids_and_subjects() -> None:
    vectors = read("ids")
    assert [each for each in vectors["valid"] if not ids.is_id(each)] == []
    assert [each for each in vectors["invalid"] if ids.is_id(each)] == []
    for vector in vectors["uuids"]:
        assert ids.is_uuid7(vector["id"]) == vector["valid"], vector
        if vector["valid"]:
            assert ids.uuid7_time_ms(vector["id"]) == vector["time_ms"]
    build = {
        "sandbox": subjects.sandbox_subject,
        "pool": subjects.pool_subject,
        "reply": subjects.reply_subject,
        "reply_prefix": subjects.reply_prefix,
        "reply_wildcard": subjects.reply_wildcard,
        "run_event": subjects.run_event_subject,
    }
    found = read("subjects")
    for name, function in build.items():
        vector = found["built"][name]
        assert function(*vector["args"]) == vector["subject"]
    for vector in found["refused"]:
        with pytest.raises(errors.InvalidRequestError) as caught:
            build[vector["build"]](*vector["args"])
        assert caught.value.field == vector["field"]


def test_new_ids_are_uuid7_and_only_grow() -> None:
    made = [ids.new_uuid7() for _ in range(20_000)]
    assert all(map(ids.is_uuid7, made))
    assert made == sorted(set(made))


def test_error_classes_are_those_of_the_contract() -> None:
    vectors = read("errors")
    assert set(errors.ERROR_CLASSES) == {vector["code"] for vector in vectors["classes"]}
    for vector in vectors["classes"]:
        error = errors.from_wire(vector["wire"])
        assert (type(error).__name__, error.code) == (vector["class"], vector["code"])
        assert error.retryable == vector["retryable"] == vector["wire"]["retryable"]
        assert error.to_wire() == vector["wire"]
    for vector in vectors["answers"]:
        with pytest.raises(errors.SandmeshError) as caught:
            codec.parse_answer("pool.renew.answer", bytes.fromhex(vector["body"]))
        error = caught.value
        assert (error.code, error.message) == (vector["code"], vector["message"])
        assert (error.sandbox, error.started) == (vector["sandbox"], vector.get("started"))


def test_outcomes_read_and_described_as_by_typescript() -> None:
    for vector in read("outcomes"):
        outcome = outcome_from_wire(vector["outcome"])
        assert outcome.type == vector["outcome"]["type"]
        assert str(outcome) == vector["describe"]
        assert shell_status(outcome) == vector["status"]


def test_credentials_are_read_and_nonces_signed_as_by_typescript() -> None:
    vectors = read("credentials")
    for text in (vectors["creds"], vectors["creds_with_crlf"]):
        credentials = parse_credentials(text)
        assert (credentials.jwt, credentials.public_key) == (vectors["jwt"], vectors["public_key"])
        assert credentials.sign(vectors["nonce"]).decode() == vectors["signature"]
        assert (credentials.tag("tenant"), credentials.tag("user")) == (vectors["tenant"], vectors["user"])
    secret = re.compile(vectors["seed"][4:40])
    for vector in vectors["bad"]:
        with pytest.raises(errors.InvalidRequestError) as caught:
            parse_credentials(vector["creds"])
        assert not secret.search(str(caught.value)), vector["name"]
