"""The examples are what users copy: they must run."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Backend, first_line, run_program, until

EXAMPLES = Path(__file__).parents[1] / "examples"
SAID = {
    "quickstart.py": "exited 3: hello from demo\nline 1\nline 2\nline 3\nsome data\n",
    "burst.py": "squares: 0 1 4 9 16 25 36 49\n",
    "without_await.py": "hello\n1 2 3\nkept\n",
}


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_an_example_runs_and_leaves_nothing(local: Backend, name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        env=local.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.returncode) == (SAID[name], 0), done.stderr
    assert local.made == []


def _blocks() -> list[str]:
    text = (EXAMPLES.parent / "README.md").read_text()
    return [block.split("```")[0] for block in text.split("```python\n")[1:]]


def test_what_a_newcomer_copies_first_is_a_program() -> None:
    compile(_blocks()[0], "README.md", "exec")


@pytest.mark.parametrize("block", range(len(_blocks())))
def test_a_block_of_the_readme_runs_and_leaves_nothing(local: Backend, block: int) -> None:
    source = _blocks()[block]
    if "async " in source and "asyncio.run(" not in source:
        body = "".join(f"    {line}\n" for line in source.splitlines())
        source = f"import asyncio\nasync def main():\n{body}\nasyncio.run(main())\n"
    done = subprocess.run(
        [sys.executable, "-c", source], env=local.environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout != ""
    # As it stands there, on a machine that has nothing installed.
    assert "127" not in done.stdout and "0 of" not in done.stdout
    assert local.made == []


def test_a_signal_made_an_exit_leaves_nothing(local: Backend) -> None:
    source = (EXAMPLES / "without_await.py").read_text().replace('"seq 3"', '"echo up; sleep 600"')
    source = source.replace("print(*(line for", "print(*(print(chunk.text, flush=True) for")
    source = source.replace(" for line in chunk.text.split()))", "))")
    program = run_program(local, source)
    try:
        until("the command runs", lambda: first_line(program) == "up")
        program.send_signal(signal.SIGTERM)
        assert program.wait(30) == 143
        assert local.made == []
    finally:
        program.kill()
        program.wait()
