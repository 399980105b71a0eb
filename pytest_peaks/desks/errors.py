"""What can go wrong with named identities and desks. Codes are spelled as the verbs of ``peaks session`` tell them."""

from __future__ import annotations

from pytest_peaks.errors import PeaksError


class BadJsonError(PeaksError):
    """The ledger or the pool's configuration is not what it should be; the file is left as it is."""

    code = "bad_json"


class BadConfigError(PeaksError):
    """A value in the pool's configuration can't be used; names the file, the key and the reason."""

    code = "bad_config"


class SchemaTooNewError(PeaksError):
    """A later pytest-peaks wrote the file; it is left as it is."""

    code = "schema_too_new"


class WriteFailedError(PeaksError):
    """The ledger, or a saved state, could not be written; what was there before stays."""

    code = "write_failed"


class UnlinkFailedError(PeaksError):
    """A saved state could not be removed; the session stays as it was."""

    code = "unlink_failed"


class SessionExistsError(PeaksError):
    """A session of that name is known already."""

    code = "session_exists"
    exit_code = 2


class StateExistsError(PeaksError):
    """A saved state of that name is there, though no session has it."""

    code = "state_exists"
    exit_code = 2


class UnknownSessionError(PeaksError):
    """There is no session of that name."""

    code = "unknown_session"
    exit_code = 2


class NotSeatedError(PeaksError):
    """The session has no desk now."""

    code = "not_seated"
    exit_code = 2


class LeaseLostError(PeaksError):
    """The lease is not the one that holds the desk now: what was asked for is not done."""

    code = "lease_lost"
    exit_code = 2


class SessionBusyError(PeaksError):
    """Another process holds the session, or is in the middle of a turn with it."""

    code = "session_busy"
    exit_code = 2


class NoFreeDeskError(PeaksError):
    """All desks are taken; names who sits where."""

    code = "no_free_desk"
    exit_code = 3


class DeskFailedError(PeaksError):
    """A desk could not be started or blanked, or its browser does not answer."""

    code = "desk_failed"
    exit_code = 5


class NotSavedError(PeaksError):
    """What the browser holds could not be saved; the session keeps its desk."""

    code = "not_saved"
    exit_code = 5
