"""What opens sessions in a test's or fixture's own words: ``peaks_sessions`` and ``peaks_session_factory``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

from pytest_peaks import marker
from pytest_peaks.config import PeaksConfig
from pytest_peaks.errors import InvalidOptionError

if TYPE_CHECKING:
    from pytest_peaks.artifacts.recorder import Recorders
    from pytest_peaks.handle import PeaksSession
    from pytest_peaks.owner import Owner


class SessionOpener:
    """Opens named sessions within one test or fixture (the fixture ``peaks_sessions``).

    ``alice, bob = opener("alice", "bob")`` gives one handle a name, ``alice = opener("alice")`` the
    handle itself. Keyword arguments are those of the marker, over what the marker says. A name that
    is open already gives the same handle.
    """

    def __init__(
        self,
        owner: Owner,
        config: PeaksConfig,
        arguments: Mapping[str, Any],
        base_url: str | None,
        recorders: Recorders | None = None,
    ) -> None:
        self._recorders = recorders
        self._owner = owner
        self._config = config
        self._arguments = dict(arguments)
        self._base_url = base_url
        self._open: dict[str, tuple[PeaksSession, dict[str, Any]]] = {}

    @overload
    def __call__(self, name: str, /, **arguments: Any) -> PeaksSession: ...

    @overload
    def __call__(
        self, name: str, second: str, /, *more: str, **arguments: Any
    ) -> tuple[PeaksSession, ...]: ...

    def __call__(self, /, *names: str, **arguments: Any) -> PeaksSession | tuple[PeaksSession, ...]:
        """Open one session a name.

        :raises InvalidNameError: a name is not ``[a-z0-9][a-z0-9_-]{0,39}``.
        :raises InvalidOptionError: no name, a name twice, or a wrong argument.
        """
        if not names:
            raise InvalidOptionError("peaks_sessions() needs a name", hint='peaks_sessions("alice", "bob")')
        if len(set(names)) < len(names):
            raise InvalidOptionError(f"a name is given twice: {', '.join(names)}", hint="one handle a name")
        handles = tuple(self._one(name, arguments) for name in names)
        return handles[0] if len(handles) == 1 else handles

    def write_back(self) -> None:
        """Save the logins of the sessions again, as they are configured."""
        for handle, _ in self._open.values():
            handle.write_back()

    def close(self) -> None:
        for handle, _ in reversed(self._open.values()):
            handle.close()
        self._open.clear()

    def _one(self, name: str, arguments: dict[str, Any]) -> PeaksSession:
        known = self._open.get(name)
        if known is not None:
            handle, before = known
            if arguments and arguments != before:
                raise InvalidOptionError(
                    f"session {name!r} is open with other arguments", hint="give another session another name"
                )
            return handle
        spec = marker.build_spec({**self._arguments, **arguments, "name": name}, self._config)
        recorder = self._recorders(name) if self._recorders is not None else None
        handle = self._owner.open(spec, self._base_url, recorder=recorder)
        self._open[name] = handle, arguments
        return handle


class SessionFactory:
    """Opens sessions of any scope (the fixture ``peaks_session_factory``).

    ``with factory(isolation="browser") as session: yield session.page`` in a fixture of the scope
    that is wanted. Arguments are those of the marker.
    """

    def __init__(self, owner: Owner, config: PeaksConfig, base_url: str | None) -> None:
        self._owner = owner
        self._config = config
        self._base_url = base_url

    def __call__(self, name: str | None = None, **arguments: Any) -> PeaksSession:
        """Open a session, to be closed by ``with`` or its ``close()``; at the latest at the end of the run.

        :raises InvalidOptionError: a wrong argument.
        """
        return self._owner.open(marker.build_spec({"name": name, **arguments}, self._config), self._base_url)
