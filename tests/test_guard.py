"""`peaks guard`: what it denies and allows, that its corrections pass, and that nothing makes it fail."""

from __future__ import annotations

import functools
import io
import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pytest_peaks.guard import hook, rules
from pytest_peaks.guard.rules import judge, open_sessions
from pytest_peaks.session.paths import ProjectDirs

# No test depends on how fast the machine is, and neither do hypothesis's checks of it.
quick = settings(deadline=None, max_examples=300, database=None, suppress_health_check=[HealthCheck.too_slow])
Peaks = Callable[..., "subprocess.CompletedProcess[str]"]

GOOD = "playwright-cli -s=probe-cart-4 open"
BAD = "playwright-cli open"


def event(command: object, **changes: Any) -> dict[str, Any]:
    """What a harness sends before it runs a command."""
    return {
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": command},
        **changes,
    }


def answer_to(given: object, *, explain: bool = False) -> dict[str, Any] | None:
    content = given if isinstance(given, bytes) else json.dumps(given).encode()
    return hook.respond(io.BytesIO(content), explain=explain)


def decision(command: str, folder: Path) -> str:
    """The code of a refusal, "allow", or "silent"."""
    answer = answer_to(event(command, cwd=str(folder)))
    if answer is None:
        return "silent"
    output = answer["hookSpecificOutput"]
    return str(output.get("code", output["permissionDecision"]))


@functools.cache
def project_folder() -> Path:
    """A folder without settings; for tests that hypothesis runs, which have no fixtures of their own."""
    return Path("/nonexistent-project")


# The forms that were let through by a guard that looked for patterns in the text

LET_THROUGH = {
    "TMPDIR=/tmp playwright-cli open": "NAME_MISSING",
    "env A=1 npx playwright-cli open": "NAME_MISSING",
    "npx --no-install playwright-cli open": "NAME_MISSING",
    "npx -y @playwright/cli open": "NAME_MISSING",
    "./node_modules/.bin/playwright-cli open": "NAME_MISSING",
    "timeout 60 npx playwright-cli open": "NAME_MISSING",
    "(playwright-cli open)": "NAME_MISSING",
    "echo $(playwright-cli open)": "NAME_MISSING",
    "sleep 1 & playwright-cli open": "NAME_MISSING",
    "npm exec -- playwright-cli open": "NAME_MISSING",
    "pnpm playwright-cli open": "NAME_MISSING",
    "PLAYWRIGHT_CLI_SESSION=default playwright-cli open": "NAME_RESERVED",
    "playwright-cli list && playwright-cli -s=default open": "NAME_RESERVED",
    "playwright-cli -s=probe-j-xyz-4 open; playwright-cli goto http://a": "NAME_MISSING",
    'playwright-cli goto "http://a?x-s=probe-j-xyz-4"': "NAME_MISSING",
    "playwright-cli kill-all": "KILL_ALL",
    "playwright-cli -s=probe-j-xyz-4 attach --cdp=http://127.0.0.1:9222": "SHARED_BROWSER",
}

NAMES = {
    "playwright-cli snapshot": "NAME_MISSING",
    "playwright-cli -s= open": "NAME_MISSING",
    "playwright-cli -s=probe-cart-4 open --json=x": "CLI_USAGE",
    "playwright-cli open -s": "NAME_MISSING",
    "playwright-cli --session= open": "NAME_MISSING",
    "playwright-cli -s=test open": "NAME_RESERVED",
    "playwright-cli -s x open": "NAME_RESERVED",
    "playwright-cli --session main open": "NAME_RESERVED",
    "playwright-cli --session=j-cart-3-c1 open": "NAME_PREFIX",
    "playwright-cli -s=fd-1 open": "NAME_TOO_SHORT",
    f"playwright-cli -s=probe-{'a' * 35} open": "NAME_TOO_LONG",
    "playwright-cli -s=../probe-cart open": "INVALID_NAME",
    "playwright-cli -s='probe cart' open": "INVALID_NAME",
    "playwright-cli -s=probe-one-1 -s=probe-two-2 open": "INVALID_NAME",
    "playwright-cli open http://a -s=default": "NAME_RESERVED",
    "playwright-cli open -- -s=probe-cart-4": "NAME_MISSING",
    "playwright-cli --raw open": "NAME_MISSING",
    "playwright-cli > out -s=default open": "NAME_RESERVED",
    "a | playwright-cli 2>&1 -s=default open": "NAME_RESERVED",
    "! playwright-cli list && playwright-cli > out open": "NAME_MISSING",
    "playwright-cli <<EOF -s=default open\nEOF": "NAME_RESERVED",
    "env -S 'playwright-cli \n -s=default open'": "CANNOT_TELL",
    "playwright-cli -s=$NAME open": "CANNOT_TELL",
    'playwright-cli -s="probe-$x" open': "CANNOT_TELL",
    "playwright-cli -s=probe-* open": "CANNOT_TELL",
    "playwright-cli -s=probe-{a,b}-1 open": "CANNOT_TELL",
    'playwright-cli "$@"': "CANNOT_TELL",
    "playwright-cli -s=probe-cart-4 $COMMAND": "CANNOT_TELL",
    "PLAYWRIGHT_CLI_SESSION=$N playwright-cli open": "CANNOT_TELL",
    "export PLAYWRIGHT_CLI_SESSION=tmp; playwright-cli open": "NAME_RESERVED",
    "PLAYWRIGHT_CLI_SESSION=probe-cart-4; playwright-cli open": "NAME_MISSING",
    "(export PLAYWRIGHT_CLI_SESSION=probe-cart-4); playwright-cli open": "NAME_MISSING",
    "export PLAYWRIGHT_CLI_SESSION=probe-cart-4; unset PLAYWRIGHT_CLI_SESSION; playwright-cli open": "NAME_MISSING",
    "export PLAYWRIGHT_CLI_SESSION=probe-cart-4; env -i playwright-cli open": "NAME_MISSING",
    "export PLAYWRIGHT_CLI_SESSION=probe-cart-4 | playwright-cli open": "NAME_MISSING",
    "peaks cli open": "NAME_MISSING",
    "peaks --json cli -s=default open": "NAME_RESERVED",
    "python -m pytest_peaks cli open": "NAME_MISSING",
    "playwright-cli attach --endpoint=/tmp/x": "SHARED_BROWSER",
    "playwright-cli -s=fd attach other": "SHARED_BROWSER",
    "playwright-cli -s=fd-1 attach other": "NAME_TOO_SHORT",
    "peaks cli -s=probe-cart-4 attach --extension": "SHARED_BROWSER",
    "playwright-cli -s=fd-cart-4 attach other; playwright-cli -s=probe-cart-4 open": "SHARED_BROWSER",
    "PLAYWRIGHT_MCP_CDP_ENDPOINT=http://x playwright-cli -s=probe-cart-4 open": "SHARED_BROWSER",
    "npx playwright-cli kill-all || true": "KILL_ALL",
    "playwright-cli kill-all --json": "KILL_ALL",
}

# Ways in which a shell comes to run a program

RUN_BY = [
    "bunx playwright-cli open",
    "pnpm exec playwright-cli open",
    "pnpm dlx @playwright/cli@0.1.22 open",
    "yarn playwright-cli open",
    "yarn exec playwright-cli open",
    "yarn run playwright-cli open",
    "npm exec playwright-cli open",
    "npm x playwright-cli open",
    "npx --yes playwright-cli@latest open",
    "npx -p @playwright/cli playwright-cli open",
    "npx --package=@playwright/cli -c 'playwright-cli open'",
    "npx playwright cli open",
    "playwright cli open",
    "python -m playwright cli open",
    "python3.11 -X dev -m playwright cli open",
    "uv run playwright cli open",
    "uvx playwright cli open",
    "node node_modules/playwright/cli.js cli open",
    "node node_modules/@playwright/cli/playwright-cli.js open",
    "/usr/bin/playwright-cli.cmd open",
    "$HOME/bin/playwright-cli open",
    "A=1 B=2 playwright-cli open",
    "env -i -u X A=1 playwright-cli open",
    "env -S 'playwright-cli open'",
    "timeout -k 5 --signal=KILL 60 playwright-cli open",
    "nohup nice -n 5 playwright-cli open &",
    "time -p playwright-cli open",
    "sudo -u me A=1 playwright-cli open",
    "doas -u me playwright-cli open",
    "setsid -f playwright-cli open",
    "stdbuf -oL playwright-cli open",
    "ionice -c 3 playwright-cli open",
    "command playwright-cli open",
    "exec playwright-cli open",
    "builtin command playwright-cli open",
    "coproc playwright-cli open",
    "coproc CLI { playwright-cli open; }",
    "watch -n 1 playwright-cli open",
    "watch 'playwright-cli open'",
    "flock /tmp/lock playwright-cli open",
    "flock /tmp/lock -c 'playwright-cli open'",
    "script -qc 'playwright-cli open' /dev/null",
    "su -c 'playwright-cli open' me",
    "xargs -n 1 playwright-cli open",
    "parallel -j 2 playwright-cli open ::: a b",
    "find . -name x -exec playwright-cli open {} ';'",
    "find . -exec sh -c 'playwright-cli open' \\;",
    "a | playwright-cli open",
    "a || playwright-cli open",
    "a && playwright-cli open",
    "a; playwright-cli open",
    "a\nplaywright-cli open",
    "! playwright-cli open",
    "{ playwright-cli open; } > out",
    'echo "$(playwright-cli open)"',
    "echo `playwright-cli open`",
    'echo "`playwright-cli open`"',
    "echo ${x:-$(playwright-cli open)}",
    "cat <(playwright-cli open)",
    "x=$(playwright-cli open)",
    "x=1 y=$(playwright-cli open) z",
    "[[ -n $(playwright-cli open) ]]",
    "(( $(playwright-cli open) ))",
    "grep $(playwright-cli open) playwright-cli.md",
    "f() { playwright-cli open; }; f",
    "function f { playwright-cli open; }",
    "if playwright-cli open; then :; fi",
    "if a; then :; elif playwright-cli open; then :; fi",
    "while playwright-cli open; do :; done",
    "for i in 1 2; do playwright-cli open; done",
    "select i in 1 2; do playwright-cli open; done",
    "for ((i=0;i<3;i++)); do playwright-cli open; done",
    "case $x in a) playwright-cli open;; esac",
    "bash -c 'playwright-cli open'",
    'sh -lc "playwright-cli open"',
    'bash -eo pipefail -c "playwright-cli open"',
    "bash -c \"bash -c 'playwright-cli open'\"",
    'bash -c "bash -c \\"playwright-cli open\\""',
    "eval 'playwright-cli open'",
    "eval playwright-cli open",
    "trap 'playwright-cli open' EXIT",
    "bash <<EOF\nplaywright-cli open\nEOF",
    "bash -s -- a <<'EOF'\nplaywright-cli open\nEOF\necho done",
    "cat <<EOF | bash\nplaywright-cli open\nEOF",
    "cat <<'EOF' | tee log | bash -s\nplaywright-cli open\nEOF",
    "cat <<EOF\n$(playwright-cli open)\nEOF",
    "bash <<< 'playwright-cli open'",
    "source /dev/stdin <<< 'playwright-cli open'",
    "echo 'playwright-cli open' | bash",
    "printf 'playwright-cli open\\n' | sh",
    "{ echo 'playwright-cli open'; } | bash",
    'play"wright"-cli open',
    "'playwright-cli' open",
    "play\\wright-cli open",
    "$'playwright-cli' open",
    "$'\\x70laywright-cli' open # playwright cli",
    "play\\\nwright-cli open",
    "playwright-cli \\\n  open \\\n  http://a",
    "# a comment \\\nplaywright-cli open",
    "echo ü 'é' && playwright-cli open",
]

CANNOT_TELL = [
    'echo "${x:-`playwright-cli open`}"',
    "alias p=playwright-cli",
    "X=playwright-cli; $X open",
    'CLI="npx playwright-cli"; $CLI -s=probe-cart-4 open',
    "X=playwright; $X-cli open",
    'set -- playwright-cli open; "$@"',
    "$(echo playwright-cli) open",
    "playwright-cli() { :; }; playwright-cli list",
    "python -c 'import os; os.system(\"playwright-cli open\")'",
    'node -e \'require("child_process").execSync("playwright-cli open")\'',
    "awk 'BEGIN{system(\"playwright-cli open\")}'",
    "sed 's/x/playwright-cli open/e' file",
    "git -c alias.x='!playwright-cli open' x",
    "docker exec box playwright-cli open",
    "ssh host playwright-cli open",
    "echo 'playwright-cli open' | xargs -I{} sh -c '{}'",
    "echo 'playwright-cli open' | while read c; do $c; done",
    "printf 'playwright-cli %s' open | sh",
    "echo 'playwright-cli open' > x.sh; bash x.sh",
    "cat > x.sh <<EOF\nplaywright-cli open\nEOF\nchmod +x x.sh && ./x.sh",
    "echo 'playwright-cli open' | tee x.sh; . ./x.sh",
    "for c in playwright-cli; do $c open; done",
    "xargs playwright-cli < file",
    "echo default | xargs -I NAME playwright-cli -s=NAME open",
    "parallel playwright-cli -s={} open ::: a b",
    'bash -c "playwright-cli -s=$N open"',
    "playwright-cli list &&",
    "echo ) playwright-cli open",
    "if playwright-cli list",
    "playwright-cli list\0",
    "uv tool run playwright cli open",
    # What the grammar takes for something else, and says nothing about.
    'echo "$(time case a in a) playwright-cli open;; esac)"',
    'echo "$(! case a in a) playwright-cli open;; esac)"',
    "a | b | time  printf  \nc\n playwright-cli open  2>&1",
    "env A=$(echo 'x playwright-cli open')",
    "[[ -n $(run playwright-cli open) ]]",
    "cat <<EOF\n$(run playwright-cli open)\nEOF",
]

# What is as it should be: "allow" where the line is nothing else, silence where it is not

RIGHT = {
    "playwright-cli": "allow",
    "playwright-cli list": "allow",
    "playwright-cli --json list": "allow",
    "playwright-cli list --json": "allow",
    "playwright-cli --help": "allow",
    "playwright-cli open --help": "allow",
    "playwright-cli -h open": "allow",
    "playwright-cli --version": "allow",
    "playwright-cli -v": "allow",
    "playwright-cli -s open": "allow",  # a session of that name and no command: it prints its help
    "playwright-cli show": "allow",
    "playwright-cli close-all >/dev/null 2>&1 || true": "allow",
    "npx --no-install playwright-cli --version": "allow",
    "playwright-cli install": "silent",
    "playwright-cli install-browser chromium": "silent",
    GOOD: "allow",
    "npx playwright-cli -s=probe-cart-4 open": "allow",
    'playwright-cli -s="probe-j-x-4" open': "allow",
    "playwright-cli -s probe-j-x-4 open": "allow",
    "playwright-cli --session=probe-j-x-4 open": "allow",
    "playwright-cli --session probe-j-x-4 open": "allow",
    "playwright-cli open http://a -s=probe-j-x-4": "allow",
    "playwright-cli -s=probe-cart-4 --raw snapshot": "allow",
    "playwright-cli -s=probe-cart-4 open --persistent": "allow",
    "playwright-cli -s=probe-cart-4 open --profile=x": "silent",
    "playwright-cli -s=probe-cart-4 run-code 'async page => 1'": "silent",
    "playwright-cli -s=probe-cart-4 open & playwright-cli -s=probe-shop-4 open & wait": "allow",
    "for u in a b; do playwright-cli -s=probe-cart-4 goto $u; done": "allow",
    "timeout 60 playwright-cli -s=probe-cart-4 open": "allow",
    "PLAYWRIGHT_CLI_SESSION=probe-cart-4 playwright-cli open": "allow",
    "env PLAYWRIGHT_CLI_SESSION=probe-cart-4 playwright-cli open": "silent",
    "export PLAYWRIGHT_CLI_SESSION=probe-cart-4; playwright-cli open && playwright-cli snapshot": "silent",
    "peaks cli list": "allow",
    "peaks cli kill-all": "allow",
    "peaks cli -s=$NAME open": "allow",
    'peaks cli "$@"': "allow",
    "peaks cli -s=shop open --project=/elsewhere": "silent",
    "playwright-cli -s=fd-cart-4 attach --cdp=http://127.0.0.1:9222": "silent",
    "TMPDIR=/tmp playwright-cli -s=probe-cart-4 open": "silent",
    "LD_PRELOAD=x playwright-cli -s=probe-cart-4 open": "silent",
    "./playwright-cli -s=probe-cart-4 open": "silent",
    "sudo playwright-cli -s=probe-cart-4 open": "silent",
    "playwright-cli -s=probe-cart-4 open; rm -rf x": "silent",
    "playwright-cli -s=probe-cart-4 snapshot > ~/.bashrc": "silent",
    "playwright-cli -s=probe-cart-4 open $(rm -rf x)": "silent",
    "playwright-cli -s=probe-cart-4 open 2>&1 | tee log": "silent",
    "playwright-cli -s=probe-cart-4 --raw eval '1' | jq .": "silent",
    "node /tmp/playwright/cli.js cli list": "silent",
    "npx playwright-cli@1.0 list": "silent",
    "bash -c 'playwright-cli -s=probe-cart-4 open'": "silent",
    "echo 'playwright-cli -s=probe-cart-4 open' | bash": "silent",
    "xargs -I{} playwright-cli -s=probe-cart-4 goto {} < urls": "silent",
    "if playwright-cli list | grep -q probe; then playwright-cli -s=probe-cart-4 close; fi": "silent",
    "x=$(playwright-cli -s=probe-cart-4 --raw eval '1'); echo $x": "silent",
    "playwright-cli list; $EDITOR x": "silent",
    "playwright-cli -s=probe-cart-4 goto http://a/?q=playwright-cli": "allow",
}

# What only talks of it

TALK = [
    'echo "run; playwright-cli open"',
    "echo playwright-cli open",
    "printf '%s\\n' 'playwright-cli open'",
    "grep -rn 'playwright-cli open' docs | head",
    "rg playwright-cli || true",
    "ps aux | grep playwright-cli | grep -v grep",
    "which playwright-cli && type playwright-cli",
    "command -v playwright-cli",
    "man playwright-cli",
    "ls .playwright-cli/ && rm -rf .playwright-cli",
    "./collect.sh .playwright-cli",
    "cat docs/playwright-cli-protocol.md",
    "cat docs/playwright-cli.md | wc -l",
    "git commit -m 'use playwright-cli open'",
    "git log --grep=playwright-cli",
    "git commit -m \"$(cat <<'EOF'\nUse playwright-cli open\nEOF\n)\"",
    "cat <<'EOF' > notes.md\nRun playwright-cli open.\nEOF",
    'cat > notes.md <<EOF\nRun "playwright-cli open".\nEOF',
    "npm install -D @playwright/cli",
    "npm ls @playwright/cli",
    "pip install playwright click",
    "echo hi # playwright-cli open",
    "# playwright-cli open",
    "find . -name 'playwright-cli*' -print",
    "sed -n 's/playwright-cli/x/p' file",
    "awk '/playwright-cli/ {print $2}' file",
    "[[ $x == playwright-cli ]] && echo yes",
    "case $x in playwright-cli) echo yes;; esac",
    "DOC='see playwright-cli open'; echo done",
    "cd node_modules/@playwright/cli && ls",
    "pytest -k 'playwright-cli or click'",
    "npx playwright test && echo clicked",
    '"$VENV"/bin/playwright install chromium # cli',
    "peaks name probe cli",
    "ls -la",
    "",
]

DENIED = {
    **LET_THROUGH,
    **NAMES,
    **dict.fromkeys(RUN_BY, "NAME_MISSING"),
    **dict.fromkeys(CANNOT_TELL, "CANNOT_TELL"),
}
EXPECTED = {**DENIED, **RIGHT, **dict.fromkeys(TALK, "silent")}


@pytest.mark.parametrize("command", EXPECTED)
def test_each_command_is_judged_as_it_should_be(command: str, tmp_path: Path) -> None:
    assert decision(command, tmp_path) == EXPECTED[command]


@pytest.mark.parametrize("command", DENIED)
def test_a_correction_is_itself_allowed_and_does_the_same(command: str, tmp_path: Path) -> None:
    verdict = judge(command, tmp_path)
    assert verdict.error is not None
    assert str(verdict.error).startswith(EXPECTED[command])
    assert verdict.error.hint
    if verdict.corrected is None:
        assert verdict.error.code in ("CANNOT_TELL", "CLI_USAGE", "SHARED_BROWSER")
        return
    assert decision(verdict.corrected, tmp_path) in ("allow", "silent")


def test_the_correction_changes_what_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    def corrected(command: str) -> str | None:
        return judge(command, tmp_path).corrected

    assert corrected("cd a && npx playwright-cli -s='j-cart-3' open 'a b' | tee x") == (
        "cd a && npx playwright-cli -s=probe-j-cart-3 open 'a b' | tee x"
    )
    assert corrected("bash -c \"A=1 playwright-cli  -s default open 'ü' \" # é") == (
        "bash -c \"A=1 playwright-cli  -s=probe-default open 'ü' \" # é"
    )
    assert corrected("playwright-cli -s=probe-cart-4 open; playwright-cli snapshot") == (
        "playwright-cli -s=probe-cart-4 open; playwright-cli -s=probe-cart-4 snapshot"
    )
    assert corrected("npx -y @playwright/cli -s=$N open") == "peaks cli -s=$N open"
    assert corrected("python -m playwright cli kill-all; ls") == "peaks cli kill-all; ls"
    assert corrected("playwright-cli -s=probe-cart-4 attach --cdp=http://a") == (
        "peaks cli -s=probe-cart-4 open URL"
    )
    assert corrected("playwright-cli -s=x open $(playwright-cli kill-all)`playwright-cli -s=$N open`") == (
        "playwright-cli -s=probe-x open $(peaks cli kill-all)`peaks cli -s=$N open`"
    )
    assert corrected("play\\\nwright-cli -s=x list-x \\\n b") == "play\\\nwright-cli -s=probe-x list-x \\\n b"


def test_a_correction_that_would_not_pass_is_not_given(tmp_path: Path) -> None:
    verdict = judge("playwright-cli open; alias p=playwright-cli", tmp_path)
    assert verdict.error is not None
    assert verdict.error.code == "NAME_MISSING"
    assert verdict.corrected is None


def test_two_who_name_no_session_are_not_sent_into_the_same(tmp_path: Path) -> None:
    assert judge(BAD, tmp_path).corrected != judge(BAD, tmp_path).corrected


def test_the_reason_quotes_nothing_beside_what_is_wrong(tmp_path: Path) -> None:
    verdict = judge("PASSWORD=hunter2 playwright-cli -s=default fill e1 hunter2", tmp_path)
    assert "hunter2" not in str(verdict.error)
    assert "'default'" in str(verdict.error)


def test_the_rules_are_those_of_the_project(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "pyproject.toml").write_text('[tool.peaks.names]\nprefixes = ["bd"]\n')
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert decision("playwright-cli -s=bd-cart-4 open", below) == "allow"
    assert decision(GOOD, below) == "NAME_PREFIX"
    (tmp_path / "pyproject.toml").write_text("[tool.peaks.names]\nprefixes = 3\n")
    assert decision("playwright-cli -s=bd-cart-4 open", below) == "INVALID_OPTION"
    assert decision("playwright-cli list", below) == "allow"


def test_attaching_is_for_one_session_of_debugging(tmp_path: Path) -> None:
    attach = "playwright-cli -s=fd-login-1 attach --cdp=http://127.0.0.1:9222"
    assert decision(attach, tmp_path) == "silent"
    assert decision(f"{attach}; playwright-cli -s=fd-login-1 snapshot", tmp_path) == "silent"
    assert decision(f"{attach}; playwright-cli -s=fd-login-2 open", tmp_path) == "SHARED_BROWSER"
    records = ProjectDirs.locate(tmp_path).create().records
    (records / "cli-fd-login-1.json").write_text("{}")
    (records / "other.json").write_text("{}")
    assert open_sessions(tmp_path) == ["fd-login-1"]
    assert decision(attach, tmp_path) == "silent"
    (records / "cli-probe-cart-4.json").write_text("{}")
    assert decision(attach, tmp_path) == "SHARED_BROWSER"


# The answer's form


def test_a_refusal_has_the_form_of_the_harness(tmp_path: Path) -> None:
    answer = answer_to(event("playwright-cli -s=default open", cwd=str(tmp_path)))
    assert answer is not None
    output = answer["hookSpecificOutput"]
    assert output["hookEventName"] == "PreToolUse"
    assert output["permissionDecision"] == "deny"
    assert output["permissionDecisionReason"].startswith("NAME_RESERVED: ")
    assert output["permissionDecisionReason"].endswith(output["correctedCommand"])
    assert output["correctedCommand"] == "playwright-cli -s=probe-default open"
    assert "invocations" not in answer


def test_allow_names_the_sessions(tmp_path: Path) -> None:
    answer = answer_to(event(f"{GOOD}; playwright-cli -s=probe-shop-4 open", cwd=str(tmp_path)))
    assert answer == {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "allow",
            "permissionDecisionReason": "session probe-cart-4, probe-shop-4",
        }
    }


def test_explain_answers_always(tmp_path: Path) -> None:
    def explained(command: str) -> Any:
        answer = answer_to(event(command, cwd=str(tmp_path)), explain=True)
        assert answer is not None
        return answer["hookSpecificOutput"]["permissionDecision"], answer["invocations"]

    assert explained("ls") == ("allow", [])
    assert explained("echo playwright-cli") == ("allow", [])
    said, invocations = explained(f"sudo npx {GOOD}; playwright-cli -s=$X open; peaks cli list")
    assert said == "deny"
    assert [(call["program"], call["command"], call["session"], call["error"]) for call in invocations] == [
        ("npx playwright-cli", "open", "probe-cart-4", None),
        ("playwright-cli", "open", None, "CANNOT_TELL"),
        ("peaks cli", "list", None, None),
    ]


def test_other_tools_are_none_of_its_business() -> None:
    assert answer_to(event(BAD, tool_name="Write")) is None
    assert answer_to({"tool_name": "Read", "tool_input": None}) is None


MALFORMED: list[object] = [
    b"",
    b"null",
    b"[]",
    b"3",
    b'"Bash"',
    b"{",
    b"\xff\xfe\x00",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    {},
    {"tool_name": None},
    {"tool_name": "Bash"},
    {"tool_name": "Bash", "tool_input": None},
    {"tool_name": "Bash", "tool_input": []},
    {"tool_name": "Bash", "tool_input": {}},
    event(None),
    event(["playwright-cli", "open"]),
    event(3),
]


@pytest.mark.parametrize("content", MALFORMED, ids=range(len(MALFORMED)))
def test_an_event_that_is_none_is_denied(content: object) -> None:
    answer = answer_to(content)
    assert answer is not None
    assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert answer["hookSpecificOutput"]["code"] == "MALFORMED_EVENT"


def test_odd_but_whole_events_are_judged() -> None:
    for odd in ({"cwd": 3}, {"cwd": "a\0b"}, {"cwd": "relative"}, {"cwd": None}, {"hook_event_name": 3}):
        answer = answer_to(event(BAD, **odd))
        assert answer is not None
        assert answer["hookSpecificOutput"]["code"] == "NAME_MISSING"
        assert answer["hookSpecificOutput"]["hookEventName"] == "PreToolUse"
    assert answer_to(json.dumps(event("playwright-cli \ud800 open")).encode()) is not None


def test_more_than_a_shell_takes_is_denied_only_with_a_mention(monkeypatch: pytest.MonkeyPatch) -> None:
    assert decision("echo " + "a" * 200_000, project_folder()) == "silent"
    assert decision(f"{GOOD}; echo " + "a" * 200_000, project_folder()) == "CANNOT_TELL"
    assert decision("eval " * 20_000 + BAD, project_folder()) == "CANNOT_TELL"
    assert decision("(" * 500 + GOOD + ")" * 500, project_folder()) == "CANNOT_TELL"
    assert decision(" && ".join(["true"] * 500 + [GOOD]), project_folder()) == "allow"
    monkeypatch.setattr(hook, "LARGEST_EVENT", 1000)
    assert decision("echo " + "a" * 2000, project_folder()) == "MALFORMED_EVENT"


def test_without_the_parser_it_says_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tree_sitter", None)
    monkeypatch.delitem(sys.modules, "pytest_peaks.guard.grammar", raising=False)
    answer = answer_to(event(GOOD))
    assert answer is not None
    assert answer["hookSpecificOutput"]["code"] == "GUARD_NOT_INSTALLED"
    assert "pip install 'pytest-peaks[guard]'" in answer["hookSpecificOutput"]["permissionDecisionReason"]
    assert answer_to(event("ls -la")) is None


def test_a_mistake_of_the_guard_denies(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_command: str, _root: Path) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(rules, "judge", broken)
    answer = answer_to(event(GOOD))
    assert answer is not None
    assert answer["hookSpecificOutput"]["code"] == "CANNOT_TELL"
    assert "ZeroDivisionError" in answer["hookSpecificOutput"]["permissionDecisionReason"]


# The command


def run_guard(content: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    code = "import sys; from pytest_peaks.guard.hook import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], input=content, capture_output=True, check=False, timeout=60
    )


def test_the_hook_always_ends_well() -> None:
    denied = run_guard(json.dumps(event(BAD)).encode())
    assert (denied.returncode, denied.stderr) == (0, b"")
    assert json.loads(denied.stdout)["hookSpecificOutput"]["permissionDecision"] == "deny"
    silent = run_guard(json.dumps(event("ls")).encode())
    assert (silent.returncode, silent.stdout, silent.stderr) == (0, b"", b"")
    explained = run_guard(json.dumps(event("ls")).encode(), "--explain")
    assert json.loads(explained.stdout)["invocations"] == []
    assert run_guard(b"", "--nonsense").returncode == 2


def test_a_command_without_a_mention_loads_no_parser() -> None:
    code = """
import io, json, sys
from pytest_peaks.guard import hook
assert hook.respond(io.BytesIO(json.dumps({"tool_name": "Bash", "tool_input": {"command": "ls"}}).encode())) is None
print(sorted(name for name in sys.modules if name.split(".")[0] in ("tree_sitter", "click", "psutil", "playwright")))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"


def test_the_verb_is_the_hook(peaks: Peaks) -> None:
    printed = peaks("guard", "--config")
    entry = json.loads(printed.stdout)["hooks"]["PreToolUse"][0]
    assert entry["matcher"] == "Bash"
    assert entry["hooks"][0]["command"] == "peaks guard"
    assert "peaks guard" in peaks("guard", "--help").stdout


# Whatever comes


def valid(answer: dict[str, Any] | None) -> bool:
    if answer is None:
        return True
    output = json.loads(json.dumps(answer))["hookSpecificOutput"]
    return output["permissionDecision"] in ("allow", "deny") and bool(output["permissionDecisionReason"])


PIECES = [
    "playwright-cli", "npx", "@playwright/cli", "peaks cli", "-s=", "-s", "open", "kill-all", "attach", "$(", ")",
    "`", '"', "'", "<<EOF\n", "EOF\n", "${x:-", "}", "{", "|", "&&", ";", "\n", "\\\n", "$'", "<(", "(", "[[", "]]",
    "if", "then", "fi", "do", "done", "bash -c", "eval", "echo", "xargs", "find . -exec", "#", "<<<", ">", "2>&1",
    "$", "\\", "case", "in", "esac", "f()", "\ue000", "é",
]  # fmt: skip
shellish = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=6)), max_size=14)


@quick
@given(words=shellish, gap=st.sampled_from(["", " "]))
@example(words=["playwright-cli", "$'\\U00110000'"], gap=" ")
@example(words=["playwright-cli", "$'\\"], gap=" ")
@example(words=["playwright-cli ", "-"], gap=" ")
def test_any_command_gets_a_valid_answer(words: list[str], gap: str) -> None:
    command = gap.join(words)
    answer = answer_to(event(command, cwd=str(project_folder())), explain=True)
    assert valid(answer)
    assert answer is not None
    assert "the guard failed" not in answer["hookSpecificOutput"]["permissionDecisionReason"]


@quick
@given(st.binary(max_size=200))
def test_any_bytes_get_a_valid_answer(content: bytes) -> None:
    assert valid(answer_to(content))


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=8,
)


@quick
@given(
    st.dictionaries(st.sampled_from(["tool_name", "tool_input", "cwd", "hook_event_name"]), json_values),
    st.booleans(),
)
def test_any_object_gets_a_valid_answer(given_event: dict[str, Any], is_shell: bool) -> None:
    assert valid(answer_to({**given_event, **({"tool_name": "Bash"} if is_shell else {})}))


def quoting(form: str) -> Callable[[str], str]:
    return lambda command: form.replace("Q", shlex.quote(command))


def around(form: str) -> Callable[[str], str]:
    return lambda command: form.replace("C", command)


WRAPPERS: list[Callable[[str], str]] = [
    *map(
        around,
        [
            "(C)", "{ C; }", "echo $(C)", 'echo "$(C)"', "cat <(C)", "x=$(C)", "if C; then :; fi", "C | cat",
            "while C; do break; done", "for i in 1 2; do C; done", "case a in a) C;; esac", "f() { C; }; f",
            "true && C", "false || C", "C &", "C\nwait", "# words\nC", "! C", "env A=1 C", "A=1 C", "nohup C",
            "timeout -k 1 5 C", "nice -n 5 C", "time C", "bash <<'EOF'\nC\nEOF", "cat <<'E1' | sh\nC\nE1",
            "coproc C", "find . -exec C ';'", "echo hi; C", "cd x && C",
        ],
    ),
    *map(
        quoting,
        [
            "bash -c Q", "sh -lc Q", "eval Q", "trap Q EXIT", "watch Q", "bash <<< Q", "echo Q | bash", "su -c Q me",
            "find . -exec sh -c Q \\;", "xargs -I{} sh -c Q", "flock f -c Q", "script -qc Q", "env -S Q",
            "sudo bash -c Q", "npx -c Q",
        ],
    ),
]  # fmt: skip


@quick
@given(st.lists(st.sampled_from(WRAPPERS), max_size=5))
def test_no_wrapping_hides_a_bad_call_and_none_breaks_on_a_good_one(
    wrappers: list[Callable[[str], str]],
) -> None:
    bad, good = BAD, GOOD
    for wrapper in wrappers:
        bad, good = wrapper(bad), wrapper(good)
    verdict = judge(bad, project_folder())
    assert verdict.error is not None, bad
    if verdict.corrected is not None:
        assert judge(verdict.corrected, project_folder()).error is None
    verdict = judge(good, project_folder())
    assert verdict.error is None or verdict.error.code in ("CANNOT_TELL", "NAME_MISSING"), good
