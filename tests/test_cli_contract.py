"""What we rely on of playwright-cli, held against the original, so that an upgrade of Playwright says what changed.

The original is the client in Playwright's own wheel, run as a user runs it. Its sessions are in a scope
of the test's own, and each test ends with a check that nothing of them is left.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from leaks import Surroundings

from pytest_peaks.doors import bundled, cli, cli_client, cli_line
from pytest_peaks.doors.cli import HARMLESS, NOT_HERE, SHOWING_REFS, PeaksCli
from pytest_peaks.errors import CliNotOpenError, CliUsageError, PeaksError, StaleRefError
from pytest_peaks.session import browsers, machine, spawning
from pytest_peaks.session.paths import ProjectDirs
from pytest_peaks.session.spec import BrowserSpec

PACKAGE = Path(bundled.driver_command()[1]).parent
VERSION = json.loads((PACKAGE / "package.json").read_text())["version"]
# 1.62 reads `-5` as an option, knows no command with any number of arguments, and exits with 0 whatever a tool says.
IS_OLDEST = VERSION.startswith("1.62.")
# For a machine that is out of breath; no test waits this long where all is well.
PATIENCE = 60.0


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"it did not come about: {what}"
        time.sleep(0.02)


class Original:
    """playwright-cli as it is in the wheel, in a scope of the test's own.

    :ivar workspace: where it is called, and where its files go.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace = folder / "w"
        (self.workspace / ".playwright").mkdir(parents=True)
        found = browsers.find(BrowserSpec())
        self.env = {
            **bundled.cli_scope(os.environ, folder, self.workspace / "output"),
            "PWTEST_CLI_GLOBAL_CONFIG": str(self.workspace),
            "PLAYWRIGHT_MCP_BROWSER": "chromium",
            "PLAYWRIGHT_MCP_EXECUTABLE_PATH": str(found.executable),
            "PLAYWRIGHT_MCP_TIMEOUT_SETTLE": "0",
            "PLAYWRIGHT_MCP_SANDBOX": "true" if machine.sandbox().usable else "false",
        }

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*bundled.driver_command(), "cli", *arguments],
            cwd=self.workspace,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=PATIENCE,
        )

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json").stdout)

    def session_file(self, name: str = "default") -> Path:
        [path] = (self.folder / "d").glob(f"*/{name}.session")
        return path

    def socket(self, name: str = "default") -> str:
        found = cli_client.socket_of(self.folder / "d", name)
        assert found is not None, f"no session {name}"
        return found


@pytest.fixture
def original(surroundings: Surroundings, tmp_path: Path) -> Iterator[Original]:
    """The original client; whatever it opened is closed in the end, and nothing is left."""
    client = Original(surroundings.temp / "o")
    yield client
    for path in (client.folder / "d").glob("*/*.session"):
        client(f"-s={path.stem}", "close")
    wait_until(lambda: not surroundings.processes(), "every daemon and browser is gone")
    shutil.rmtree(client.folder)
    surroundings.assert_clean(tmp_path)


# --- How a command line is read.

# Answers each line of JSON, an argv and the options that are booleans, by what the original makes of it.
READER = """
const { minimist } = require(process.argv[1]);
require("readline").createInterface({ input: process.stdin }).on("line", line => {
  const { argv, boolean } = JSON.parse(line);
  let answer;
  try {
    answer = { args: minimist(argv, { boolean, string: ["_"] }) };
  } catch (e) {
    answer = { error: e.message };
  }
  process.stdout.write(JSON.stringify(answer) + "\\n");
});
"""


@pytest.fixture(scope="module")
def original_reading() -> Iterator[Callable[[Sequence[str]], dict[str, Any] | None]]:
    """What the original reads of an argv; None if it refuses it. One node for all."""
    node = bundled.driver_command()[0]
    module = str(bundled.cli_surface_file().with_name("minimist.js"))
    booleans = sorted(cli_line.surface().booleans)
    with subprocess.Popen(
        [node, "-e", READER, module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        to_node, from_node = process.stdin, process.stdout

        def read(argv: Sequence[str]) -> dict[str, Any] | None:
            to_node.write(json.dumps({"argv": argv, "boolean": booleans}) + "\n")
            to_node.flush()
            answer = json.loads(from_node.readline())
            args: dict[str, Any] | None = answer.get("args")
            if args and args.get("s"):  # as its program does, right afterwards
                args["session"] = args.pop("s")
            return args

        yield read


def is_refused_on_purpose(argv: Sequence[str]) -> bool:
    """Whether our reading may refuse what the original makes something of."""
    words = argv[: argv.index("--")] if "--" in argv else argv
    for word in words:
        if re.match(r"-[A-Za-z].", word, re.DOTALL) and (not word.startswith("-s=") or word == "-s="):
            return True  # a bundle of letters, or a session without a name
        if word.startswith("--") and len(word) > 2:
            name = word[2:].partition("=")[0]
            if (
                not name
                or re.search("[\n\r\u2028\u2029]", name)
                or name.removeprefix("no-") in IN_EVERY_OBJECT
            ):
                return True
    # A letter may be an option without being a bundle, and then its name may be one of those: none has one letter.
    return False


IN_EVERY_OBJECT = frozenset(
    [
        "_",
        "constructor",
        "hasOwnProperty",
        "isPrototypeOf",
        "propertyIsEnumerable",
        "toLocaleString",
        "toString",
        "valueOf",
        "__proto__",
        "__defineGetter__",
        "__defineSetter__",
        "__lookupGetter__",
        "__lookupSetter__",
    ]
)
COMMON = [
    "click",
    "e5",
    "--",
    "-",
    "---",
    "true",
    "false",
    "-s",
    "-s=a",
    "-s=",
    "-g",
    "-h",
    "-v",
    "-5",
    "-x",
    "-sa",
    "--json",
    "--raw",
    "--no-raw",
    "--json=1",
    "--full-page",
    "--no-full-page",
    "--depth",
    "--depth=3",
    "--depth=",
    "--no-depth",
    "--no-",
    "--no",
    "--=",
    "--=x",
    "--x=a=b",
    "--x",
    "--no-no-x",
    "--s=a",
    "--session",
    "--toString=1",
    "--no-valueOf",
    "--filename",
]
COMMON += ["", *(f"--{name}" for name in sorted(IN_EVERY_OBJECT))]
LETTERS = st.text(alphabet="-=noabsg.15 \n\r\t\u2028\x85é", max_size=8)
WORDS = st.one_of(
    st.sampled_from(COMMON),
    LETTERS,
    LETTERS.map(lambda text: f"--{text}"),
    LETTERS.map(lambda text: f"--no-{text}"),
    st.builds("--{}={}".format, st.sampled_from(["x", "json", "depth", "no-x"]), LETTERS),
    st.builds("-s={}".format, LETTERS),
)


@settings(max_examples=400, deadline=None)
@given(argv=st.lists(WORDS, max_size=7))
@example(argv=["click", "e5", "--modifiers", "Shift", "--", "-x", "--json"])
@example(argv=["-s", "a", "-s", "b", "open"])
@example(argv=["-s", "", "open"])
@example(argv=["--x\r=1"])
@example(argv=["--x", "--x=1", "--x=2", "--x=3"])
@example(argv=["--raw", "false", "--raw", "true", "--depth", "true"])
@example(argv=["--toString", "x"])
def test_a_command_line_is_read_as_the_original_reads_it_or_refused_where_documented(
    original_reading: Callable[[Sequence[str]], dict[str, Any] | None], argv: list[str]
) -> None:
    if IS_OLDEST:
        argv = [word for word in argv if not re.match(r"-[^-A-Za-z]", word)]
    expected = original_reading(argv)
    try:
        ours = cli_line.parse(argv, cli_line.surface().booleans)
    except CliUsageError:
        assert expected is None or is_refused_on_purpose(argv), expected
    else:
        assert ours == expected


WRONG = (
    ("no-such-command",),
    ("clik", "e5"),
    ("goto", "a", "--bla"),
    ("goto", "--bla", "--foo=1", "--no-bar"),
    ("goto", "a", "b"),
    ("tab-close", "1", "2", "3"),
    ("snapshot", "--no-depth", "--full-page"),
    ("list", "--all", "x"),
)


@pytest.mark.parametrize("line", WRONG, ids=" ".join)
def test_a_wrong_command_line_is_refused_with_the_originals_words(
    original: Original, line: tuple[str, ...]
) -> None:
    with pytest.raises(CliUsageError) as ours:
        cli_line.check(cli_line.parse(line, cli_line.surface().booleans))
    answered = original(*line, "--json")
    assert answered.returncode == 1
    said = json.loads(answered.stdout)
    assert said["isError"] is True
    assert said["error"].removeprefix("error: ") == ours.value.message


@pytest.mark.parametrize(
    "line",
    [
        "click e5 right --modifiers=Shift",
        "screenshot --full-page --filename=x.png",
        "fill e5 -- --text",
        "cookie-set a b --no-secure",
        pytest.param("upload a b c", marks=pytest.mark.skipif(IS_OLDEST, reason="one file in 1.62")),
    ],
)
def test_a_right_command_line_passes_the_originals_checks_as_well(original: Original, line: str) -> None:
    """It then comes as far as to see that no browser is open."""
    cli_line.check(cli_line.parse(line.split(), cli_line.surface().booleans))
    answered = original(*line.split(), "--json") if "--" not in line.split() else original(*line.split())
    assert answered.returncode == 1
    assert "is not open, please run open first" in answered.stdout


# --- What is answered, byte for byte.

LINES: tuple[tuple[str, ...], ...] = (
    ("goto", "{site}"),
    ("--raw", "goto", "{site}"),
    ("--json", "goto", "{site}"),
    ("snapshot",),
    ("--raw", "snapshot", "--depth=1"),
    ("--json", "snapshot", "h1"),
    ("eval", "() => 'é\u2028\U0001f600 \\n \"'"),
    ("--raw", "eval", "location.href"),
    ("--json", "eval", "() => undefined"),
    ("eval", "() => { throw new Error('that went wrong') }"),
    ("--json", "eval", "("),
    ("click", "e99"),
    ("--raw", "click", "#nowhere"),
    ("click",),
    ("resize", "a", "b"),
    ("--json", "resize", "a", "b"),
    ("find", "page"),
    ("cookie-set", "k", "v"),
    ("cookie-list",),
    ("--json", "cookie-get", "k"),
    ("localstorage-get", "k"),
    ("tab-list",),
    ("screenshot", "--full-page"),
    ("state-load", "nowhere.json"),
    ("--json", "state-load", "nowhere.json"),
    ("type", "--", "--text"),
)


def without_timestamps(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z", "TIME", text)


def test_our_client_gives_what_the_original_prints(
    original: Original, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert original("open").returncode == 0
    monkeypatch.chdir(original.workspace)
    socket = original.socket()
    dirs = ProjectDirs.locate(original.workspace)
    door = PeaksCli(socket, dirs, original.folder)
    for template in LINES:
        line = [word.replace("{site}", site) for word in template]
        printed = original(*line)
        args = cli_line.parse(line, cli_line.surface().booleans)
        command = cli_line.check(args)
        raw, as_json = bool(args.get("raw")) or command.always_raw, bool(args.get("json"))
        ours = cli_client.ask(socket, args, cwd=os.getcwd(), raw=raw, as_json=as_json)
        if ours.refused:
            assert (printed.returncode, printed.stdout) == (1, ""), line
            # As a part of `playwright` it says `Error: ` before it; as `playwright-cli` it does not.
            assert printed.stderr.removeprefix("Error: ") == f"{ours.text}\n", line
            continue
        assert without_timestamps(printed.stdout) == without_timestamps(f"{ours.text}\n"), line
        assert printed.stderr == "", line
        if IS_OLDEST:
            assert printed.returncode == 0, line
        else:
            assert printed.returncode == int(ours.is_error), line
        if not ours.is_error:
            # And so does a test's door, which is called by the same words.
            assert without_timestamps(door(*line) + "\n") == without_timestamps(printed.stdout), line


def test_a_state_is_saved_and_loaded_with_the_originals_words(
    original: Original, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it goes through files of ours."""
    assert original("open", site).returncode == 0
    monkeypatch.chdir(original.workspace)
    door = PeaksCli(original.socket(), ProjectDirs.locate(original.workspace), original.folder)
    state = original.workspace / "state.json"
    ways: tuple[tuple[str, ...], ...] = ((), ("--raw",), ("--json",))
    for way in ways:
        for command in ("state-save", "state-load"):
            printed = original(command, str(state), *way).stdout
            assert printed.split("\n### Ran Playwright code")[0].strip() == (
                # The original names the file from the working directory.
                _formatted(door(command, str(state), *way).replace(f"({state})", "(./state.json)"))
            )


def _formatted(answer: str) -> str:
    return json.dumps(json.loads(answer), indent=2) if answer.startswith("{") else answer


# --- Shapes.


def test_what_the_sessions_commands_answer_in_json(original: Original, site: str) -> None:
    opened = original.json("-s=one", "open", site)
    assert set(opened) == {"session", "pid", "result"}
    assert opened["session"] == "one"
    assert set(opened["result"]) == {"snapshot"}
    assert (original.workspace / opened["result"]["snapshot"]["file"]).exists()
    daemon = psutil.Process(opened["pid"])
    assert "cliDaemon.js" in " ".join(daemon.cmdline()), "the pid is the daemon's"

    listed = original.json("list")
    assert set(listed) == {"browsers"}
    [row] = listed["browsers"]
    assert set(row) == (
        {"name", "workspace", "status", "browserType", "userDataDir", "headed", "persistent", "attached"}
        | {"compatible", "version"}
    )
    assert (row["name"], row["workspace"], row["status"]) == ("one", str(original.workspace), "open")
    assert row["attached"] is row["persistent"] is row["headed"] is False

    assert original.json("-s=one", "close") == {"session": "one", "status": "closed"}
    wait_until(lambda: not daemon.is_running(), "the daemon is gone")
    assert original.json("-s=one", "close") == {"session": "one", "status": "not-open"}
    assert original("-s=one", "close").returncode == 0, "to close twice is no error"
    assert original.json("list") == {"browsers": []}


def test_what_a_session_file_tells(original: Original) -> None:
    original("-s=one", "open")
    told = json.loads(original.session_file("one").read_text())
    assert {"name", "version", "socketPath", "timestamp", "workspaceDir"} <= set(told)
    assert (told["name"], told["version"]) == ("one", VERSION)
    assert told["socketPath"].startswith(str(original.folder / "s")), "sockets go where we say"
    assert Path(told["socketPath"]).is_socket()
    assert cli_client.socket_of(original.folder / "d", "one") == told["socketPath"]
    assert cli_client.is_open(told["socketPath"])


def test_the_texts_of_failures(original: Original, site: str) -> None:
    not_open = original("-s=one", "goto", site)
    assert not_open.returncode == 1
    assert not_open.stdout.splitlines()[0] == "The browser 'one' is not open, please run open first"
    said = original("-s=one", "goto", site, "--json")
    assert json.loads(said.stdout) == {
        "isError": True,
        "error": "The browser 'one' is not open, please run open first",
    }
    too_many = original("goto", "a", "b")
    assert too_many.returncode == 1
    assert too_many.stderr == "error: too many arguments: expected 1, received 2\n"

    original("open", site)
    stale = original("click", "e99")
    text = "Ref e99 not found in the current page snapshot. Try capturing new snapshot."
    assert stale.stdout == f"### Error\nError: {text}\n"
    assert original.json("click", "e99") == {"isError": True, "error": f"Error: {text}"}
    missing = original.workspace / "nowhere.json"
    assert original.json("state-load", "nowhere.json")["error"].startswith(
        f"Error: Error reading storage state from {missing}:\nENOENT"
    )

    def ask(*words: str) -> PeaksError:
        answer = cli_client.ask(original.socket(), {"_": list(words)}, cwd=str(original.workspace))
        assert answer.is_error
        return cli_client.failure(answer, words[0])

    assert isinstance(ask("click", "e99"), StaleRefError)
    assert ask("click", "e99").message == text
    assert ask("resize", "a", "b").code == "CLI_USAGE"
    assert ask("eval", "() => { throw new Error('oh') }").code == "CLI_FAILED"


def test_a_dialogs_failure_is_told_by_its_text(original: Original, site: str) -> None:
    original("open", site)
    socket, cwd = original.socket(), str(original.workspace)
    cli_client.ask(socket, {"_": ["eval", "() => { setTimeout(() => alert('hello')); }"]}, cwd=cwd)

    def blocked() -> cli_client.Answer | None:
        answer = cli_client.ask(socket, {"_": ["eval", "1"]}, cwd=cwd)
        return answer if answer.is_error else None

    wait_until(blocked, "the dialog")
    answer = blocked()
    assert answer is not None
    assert "does not handle the modal state" in answer.text
    assert "dialog-accept" in cli_client.failure(answer, "eval").hint
    assert not cli_client.ask(socket, {"_": ["dialog-accept"]}, cwd=cwd).is_error
    assert blocked() is None


def test_stop_ends_daemon_and_browser(original: Original) -> None:
    pid = original.json("open")["pid"]
    socket, path = original.socket(), original.session_file()
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    assert len(family) > 1, "the daemon has a browser"
    assert cli_client.stop(socket) is True
    wait_until(lambda: not any(process.is_running() for process in family), "all of it is gone")
    assert not path.exists(), "its session file goes with it"
    assert not cli_client.is_open(socket)
    assert cli_client.stop(socket) is False
    with pytest.raises(CliNotOpenError):
        cli_client.ask(socket, {"_": ["tab-list"]}, cwd="/")


@contextmanager
def daemon(original: Original, name: str, *, guarded: bool) -> Iterator[tuple[spawning.Spawned, str]]:
    """A daemon with a browser of its own that was started by us, its stdin in our hands; and its socket."""
    node, *_ = bundled.driver_command()
    guard = ["--import", bundled.STDIN_GUARD] if guarded else []
    command = [node, *guard, str(bundled.cli_daemon_script()), name]
    before = Path.cwd()
    os.chdir(original.workspace)
    try:
        spawned = spawning.spawn_held(command, original.env, original.folder / f"{name}.log")
    finally:
        os.chdir(before)
    found: list[str] = []

    def listens() -> bool:
        found.extend(filter(None, [cli_client.socket_of(original.folder / "d", name)]))
        return bool(found)

    wait_until(listens, "it listens")
    try:
        yield spawned, found[0]
    finally:
        spawned.pipe.close()
        cli_client.stop(found[0])
        wait_until(lambda: not spawned.identity.is_alive(), "it is gone")


def test_a_daemon_notices_the_end_of_its_owner_because_of_the_guard(original: Original) -> None:
    with (
        daemon(original, "without", guarded=False) as (without, socket),
        daemon(original, "guarded", guarded=True) as (guarded, _),
    ):
        family = psutil.Process(guarded.identity.pid).children(recursive=True)
        assert family, "it has a browser"
        without.pipe.close()
        guarded.pipe.close()
        wait_until(lambda: not guarded.identity.is_alive(), "the guarded one ends")
        wait_until(lambda: not any(process.is_running() for process in family), "and its browser")
        answer = cli_client.ask(socket, {"_": ["tab-list"]}, cwd="/")
        assert not answer.is_error
        assert without.identity.is_alive(), "without the guard it is not needed any more: remove it"


# --- The description of the commands.


def test_the_description_has_the_keys_that_are_read() -> None:
    described = json.loads(bundled.cli_surface_file().read_text(encoding="utf-8"))
    assert {"global", "commands", "booleanOptions"} <= set(described)
    assert isinstance(described["global"], str)
    for name, command in described["commands"].items():
        assert {"help", "flags", "args"} <= set(command) <= {"help", "flags", "args", "raw", "variadicArg"}, (
            name
        )
        assert set(command["flags"].values()) <= {"boolean", "string"}, name
        booleans = {flag for flag, kind in command["flags"].items() if kind == "boolean"}
        assert booleans <= set(described["booleanOptions"]), name


def test_every_argument_that_can_be_a_ref_is_known_by_its_name() -> None:
    described = json.loads(bundled.cli_surface_file().read_text(encoding="utf-8"))["commands"]
    for name, command in cli_line.surface().commands.items():
        for place, argument in enumerate(command.args):
            told = re.search(
                rf"^  [<\[](?:\.\.\.)?{argument}(?:\.\.\.)?[>\]] +(.*)", described[name]["help"], re.M
            )
            assert told, f"{name} does not explain {argument}"
            takes_a_ref = "element reference" in told[1]
            assert takes_a_ref == (place in command.targets), f"{name} {argument}: {told[1]}"


def test_every_command_that_is_named_here_exists() -> None:
    commands = set(cli_line.surface().commands)
    assert NOT_HERE - commands == set()
    assert SHOWING_REFS - commands == set()
    if not IS_OLDEST:
        assert HARMLESS - commands == set()
    assert not HARMLESS & NOT_HERE
    assert SHOWING_REFS <= HARMLESS


def test_no_command_has_an_option_that_is_ours() -> None:
    from pytest_peaks.named.front import OWN_FLAGS

    assert {"project", "auth", "executable"} <= set(OWN_FLAGS)
    for command in cli_line.surface().commands.values():
        assert not set(OWN_FLAGS) & set(command.flags), command.name


def test_the_options_that_are_read_before_the_command_are_the_originals() -> None:
    program = bundled.cli_surface_file().with_name("program.js").read_text(encoding="utf-8")
    listed = {
        name: re.findall(r'"(\w+)"', re.search(rf"const {name} = \[(.*?)\]", program, re.DOTALL)[1])  # type: ignore[index]
        for name in ("globalOptions", "booleanOptions")
    }
    assert sorted(listed["globalOptions"]) == sorted(cli_line.GLOBAL_OPTIONS)
    assert set(listed["booleanOptions"]) | ({"g"} if IS_OLDEST else set()) == set(cli_line._BOOLEANS)


def test_a_daemon_attached_to_nothing_says_why(surroundings: Surroundings, tmp_path: Path) -> None:
    """Its log is what a failed start quotes."""
    folder = surroundings.temp / "c"
    folder.mkdir()
    with pytest.raises(PeaksError, match="START_FAILED: the CLI's daemon exited before it listened") as seen:
        cli.start("ws://127.0.0.1:9/nobody", folder, os.environ, settle=0)
    assert "ECONNREFUSED" in str(seen.value)
    shutil.rmtree(folder)
    surroundings.assert_clean(tmp_path)
