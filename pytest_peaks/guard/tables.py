"""The programs that the guard knows.

What is missing here is no hole: a program that is in none of the tables may run its words, so that a
mention of the CLI among them is refused.
"""

from __future__ import annotations

from collections.abc import Mapping


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Wrappers: the options that take a value, and how many operands stand before the command.
WRAPPERS: Mapping[str, tuple[frozenset[str], int]] = {
    name: (_names(options), operands)
    for name, options, operands in (
        ("nohup", "", 0),
        ("setsid", "", 0),
        ("builtin", "", 0),
        ("exec", "-a", 0),
        ("unbuffer", "", 0),
        ("rlwrap", "", 0),
        ("chronic", "", 0),
        ("time", "-f --format -o --output", 0),
        ("timeout", "-s --signal -k --kill-after", 1),
        ("gtimeout", "-s --signal -k --kill-after", 1),
        ("nice", "-n --adjustment", 0),
        ("ionice", "-c --class -n --classdata", 0),
        ("chrt", "-T -P -D", 1),
        ("taskset", "", 1),
        ("stdbuf", "-i --input -o --output -e --error", 0),
        ("doas", "-u -C", 0),
        ("strace", "-o -e -p -s -u -E -a -I -O -S", 0),
        ("ltrace", "-o -e -p -s -u -a -n", 0),
        ("xvfb-run", "-s --server-args -n --server-num -e --error-file -f --auth-file -w --wait -p", 0),
        ("dbus-run-session", "--config-file --dbus-daemon", 0),
        ("caffeinate", "-t -w", 0),
        ("systemd-run", "-p --property -u --unit -E --setenv --uid --gid", 0),
        ("busybox", "", 0),
        ("uvx", "-p --python --with --from", 0),
        ("dotenv", "-f --file -e", 0),
    )
}
# Wrappers beside which the guard's own "allow" says yes to nothing more.
PLAIN_WRAPPERS = _names("timeout time")
# Programs with a verb that runs what follows it.
RUNNERS: Mapping[str, str] = {
    "uv": "run", "poetry": "run", "pipenv": "run", "pdm": "run", "rye": "run", "hatch": "run", "pipx": "run",
    "conda": "run", "mise": "exec",
}  # fmt: skip
RUNNER_OPTIONS = _names(
    "-p --python --with --from --project --directory --extra --group --env-file -n --name -f -e --spec --only"
)
SHELLS = _names("bash sh dash zsh ksh mksh ash rbash fish")
# Words of the shell's grammar. One that is taken for a program's name means that the rest was not understood.
RESERVED = _names("case esac if then elif else fi for while until do done select function in [[ ]] {")
# Programs that run the file that is their operand, or make it one that can be run.
INTERPRETERS = SHELLS | _names("source . python python3 node deno bun perl ruby chmod")

# What may ride along when the guard says "allow" for the whole line.
HARMLESS = _names("echo printf : true false test [ cd pwd sleep wait date exit")
# Programs that run none of their words.
INERT = HARMLESS | _names(
    """pushd popd cat tac ls dir tree stat file head tail less more wc cut paste sort uniq tr nl rev fold column
    diff cmp comm patch grep egrep fgrep zgrep rg ag ack jq yq rm rmdir mkdir mktemp touch cp mv ln chmod chown
    chgrp install basename dirname realpath readlink tee which type hash whereis man whatis apropos info tldr
    help ps pgrep pidof kill pkill killall lsof fuser top df du tar zip unzip gzip gunzip md5sum sha1sum
    sha256sum base64 xxd od hexdump strings curl wget ping pip pip3 shellcheck prettier eslint ruff mypy tsc
    pytest code vim vi nano emacs open xdg-open gh read unset shift return logout break continue set shopt
    ulimit umask jobs fg bg disown history export local declare typeset readonly let getopts seq yes nproc
    uname whoami id hostname printenv apt apt-get brew dpkg scp expr bc codespell"""
)
# Modules of Python that run none of their words.
INERT_MODULES = _names("pip pytest mypy ruff json.tool venv")

PACKAGE_VERBS = _names(
    """add install i ci sync lock show remove rm uninstall un update up upgrade list ls ll la why view info
    outdated audit store config set get link unlink import prune rebuild publish pack init create cache bin
    root pm dedupe fetch patch pip search explain version"""
)
PACKAGE_OPTIONS = _names("-C --dir --prefix --cwd -F --filter -w --workspace --registry --userconfig --cache")
NODE_OPTIONS = _names("-r --require --import --loader --experimental-loader -C")
SUDO_OPTIONS = _names("-u --user -g --group -h --host -p --prompt -C -T -r -t -D --chdir -R -U")
XARGS_OPTIONS = _names(
    "-I -n -P -L -d -E -s -a -J -R --max-args --max-procs --max-lines --delimiter --arg-file --max-chars"
)
PARALLEL_OPTIONS = _names(
    "-j --jobs -S -a --arg-file -N -n -L -I --colsep --delay --timeout --joblog --retries"
)

# Options of the CLI without a value. They are not read from the installed one: a hook has no time for
# it, and the one that will run may be another.
CLI_FLAGS = _names(
    """all g help json raw version headed mobile persistent submit boxes clear full-page hires httpOnly secure
    static global with-deps dry-run list force only-shell no-shell cursor annotate kill hide"""
)
# Commands of the CLI that work in no session.
CLI_AGNOSTIC = _names("list list-sessions sessions close-all kill-all install install-browser show help tray")
# Commands and options of the CLI that run code, or read and write files at will. They are not refused,
# but nobody's prompt is skipped for them.
CLI_ASK_FIRST = _names("attach run-code install install-browser state-save pdf upload drop video-start")
CLI_ASK_FIRST_OPTIONS = _names("config executable profile filename path project")
