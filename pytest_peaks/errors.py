"""Every failure a user can meet: a class, a stable code, what happened, and what to do.

Exit codes of the ``peaks`` command: 1 configuration or unexpected, 2 usage or state,
3 nothing free, 4 permission, 5 browser lost, 6 timeout.
"""

from __future__ import annotations

from typing import ClassVar


class PeaksError(Exception):
    """Base of all failures that pytest-peaks reports.

    :ivar code: stable name of the failure, ``UPPER_SNAKE``.
    :ivar message: one sentence saying what happened.
    :ivar hint: what the user can do about it; may be empty.
    """

    code: ClassVar[str] = "PEAKS_ERROR"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.code}: {self.message}"
        return f"{text}\nhint: {self.hint}" if self.hint else text


class InvalidOptionError(PeaksError):
    """An option, ini key, environment variable or marker argument has an unusable value."""

    code = "INVALID_OPTION"
    exit_code = 2


class InvalidNameError(PeaksError):
    """A name that would become a path is not ``[a-z0-9][a-z0-9_-]{0,39}``."""

    code = "INVALID_NAME"
    exit_code = 2


class NameMissingError(InvalidNameError):
    """A command that works in a session names none."""

    code = "NAME_MISSING"


class NameTooLongError(InvalidNameError):
    """A session's name has more characters than the project allows."""

    code = "NAME_TOO_LONG"


class NameTooShortError(InvalidNameError):
    """A session's name has fewer characters than the project asks for."""

    code = "NAME_TOO_SHORT"


class NameReservedError(InvalidNameError):
    """A session's name is one that everybody would think of."""

    code = "NAME_RESERVED"


class NamePrefixError(InvalidNameError):
    """A session's name does not begin with a prefix of the project."""

    code = "NAME_PREFIX"


class InvalidPortError(InvalidOptionError):
    """A port or a port range is not within 1024-65535, or is not a number."""

    code = "INVALID_PORT"


class PortExhaustedError(PeaksError):
    """Every port of the range that was asked for is taken."""

    code = "PORT_EXHAUSTED"
    exit_code = 3


class PortUnavailableError(PeaksError):
    """A port could not be tried for a reason other than being in use."""

    code = "PORT_UNAVAILABLE"
    exit_code = 4


class InvalidUserDataDirError(PeaksError):
    """The user-data dir is a file, cannot be written to, or is a directory that must not be one."""

    code = "INVALID_USER_DATA_DIR"
    exit_code = 2


class ConflictError(PeaksError):
    """A session that is alive has the name, or differs from the one that is asked for."""

    code = "CONFLICT"
    exit_code = 2


class NoSessionError(PeaksError):
    """There is no live session of that terminal or port, or more than one to choose from."""

    code = "NO_SESSION"
    exit_code = 2


class ProfileInUseError(PeaksError):
    """Another live browser works on this user-data dir."""

    code = "PROFILE_IN_USE"
    exit_code = 2


class BrowserNotFoundError(PeaksError):
    """No executable of the browser that was asked for is on this machine."""

    code = "BROWSER_NOT_FOUND"
    exit_code = 1


class MissingLibrariesError(PeaksError):
    """The browser is there, but the system lacks shared libraries that it needs."""

    code = "MISSING_LIBRARIES"
    exit_code = 1


class NoDisplayError(PeaksError):
    """A browser with a window was asked for on a machine without a display."""

    code = "NO_DISPLAY"
    exit_code = 1


class StartFailedError(PeaksError):
    """The browser was started and did not become ready."""

    code = "START_FAILED"
    exit_code = 5


class BrowserLostError(PeaksError):
    """The browser of a session died while it was in use."""

    code = "BROWSER_LOST"
    exit_code = 5


class DriverFailedError(PeaksError):
    """Playwright's driver process did not start, or was lost and could not be started again."""

    code = "DRIVER_FAILED"
    exit_code = 5


class McpFailedError(PeaksError):
    """The MCP server of a session is gone, or refused a request."""

    code = "MCP_FAILED"
    exit_code = 5


class McpToolError(PeaksError):
    """An MCP tool answered that it failed; the message is its text."""

    code = "MCP_TOOL_FAILED"
    exit_code = 5


class CliUsageError(PeaksError):
    """A command line of playwright-cli names no command, or gives it what it does not take."""

    code = "CLI_USAGE"
    exit_code = 2


class CliNotOpenError(PeaksError):
    """The session of playwright-cli that a command is for is not open."""

    code = "NOT_OPEN"
    exit_code = 2


class CliFailedError(PeaksError):
    """A command of playwright-cli failed; the message is its own text."""

    code = "CLI_FAILED"
    exit_code = 5


class StaleRefError(CliFailedError):
    """A ref of a snapshot was used after the page it was taken from was left."""

    code = "STALE_REF"
    exit_code = 2


class NodeNotFoundError(PeaksError):
    """A snapshot has no node of the role and name that were looked for."""

    code = "NODE_NOT_FOUND"
    exit_code = 2


class SessionExistsError(PeaksError):
    """A session of that name is open already."""

    code = "SESSION_EXISTS"
    exit_code = 2


class TooManySessionsError(PeaksError):
    """As many named sessions are open as the project allows."""

    code = "TOO_MANY_SESSIONS"
    exit_code = 3


class SharedBrowserError(PeaksError):
    """Two sessions would share one browser's context, tabs and storage."""

    code = "SHARED_BROWSER"
    exit_code = 2


class DoorNotDeclaredError(PeaksError):
    """A test used a door that its session was not opened with."""

    code = "DOOR_NOT_DECLARED"
    exit_code = 2


class WipeFailedError(PeaksError):
    """A default context could not be blanked."""

    code = "WIPE_FAILED"
    exit_code = 5


class StateNotFoundError(PeaksError):
    """There is no saved login of that name."""

    code = "STATE_NOT_FOUND"
    exit_code = 2


class InvalidStateError(PeaksError):
    """A saved login is not a storage state, or the browser refuses it."""

    code = "INVALID_STATE"
    exit_code = 2


class StateKeyError(PeaksError):
    """The key for saved logins can't be used, or what encrypts is not installed."""

    code = "STATE_KEY"
    exit_code = 2


class StateLockedError(PeaksError):
    """A saved login is encrypted and does not open: no key, another one, or a damaged file."""

    code = "STATE_LOCKED"
    exit_code = 2


class AuthExpiredError(PeaksError):
    """A saved login is not good any more, and there is no hook that logs in."""

    code = "AUTH_EXPIRED"
    exit_code = 2


class LoginFailedError(PeaksError):
    """The hook ``pytest_peaks_login`` failed, or did not log in; it is not tried again in this run."""

    code = "LOGIN_FAILED"
    exit_code = 1


class ReplayFailedError(PeaksError):
    """A saved login could not be put into the browser."""

    code = "REPLAY_FAILED"
    exit_code = 5


class NoAccountError(PeaksError):
    """Every account of a login is taken by another worker."""

    code = "NO_ACCOUNT"
    exit_code = 3


class LockTimeoutError(PeaksError):
    """A lock of the user's runtime dir was not free in time."""

    code = "LOCK_TIMEOUT"
    exit_code = 6


class NotWritableError(PeaksError):
    """A directory that pytest-peaks needs cannot be created or written to."""

    code = "NOT_WRITABLE"
    exit_code = 4


class InstallFailedError(PeaksError):
    """No way of installing a browser worked on this machine."""

    code = "INSTALL_FAILED"
    exit_code = 1


class ProblemsFoundError(PeaksError):
    """``peaks doctor`` ran and found something that has to be mended."""

    code = "PROBLEMS_FOUND"
    exit_code = 1


class ReapIncompleteError(PeaksError):
    """Something that a dead owner left could not be ended or removed."""

    code = "REAP_INCOMPLETE"
    exit_code = 1


class GuardError(PeaksError):
    """``peaks guard`` refuses a command."""

    code = "GUARD"
    exit_code = 2


class KillAllError(GuardError):
    """The command ends the browser sessions of every project and user's tool on this machine."""

    code = "KILL_ALL"


class CannotTellError(GuardError):
    """The command mentions the CLI in a way from which it does not follow what will be run."""

    code = "CANNOT_TELL"


class MalformedEventError(GuardError):
    """What the harness sent is no event, or one without a command."""

    code = "MALFORMED_EVENT"


class GuardNotInstalledError(GuardError):
    """The parser that ``peaks guard`` reads commands with is not installed."""

    code = "GUARD_NOT_INSTALLED"


def all_kinds(kind: type[PeaksError] = PeaksError) -> list[type[PeaksError]]:
    """Every class of failures, `kind` and what is below it."""
    return [kind, *(found for below in kind.__subclasses__() for found in all_kinds(below))]
