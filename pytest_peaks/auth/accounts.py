"""Accounts: each slot has one for the run, and no two processes ever share one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytest_peaks.auth.login import key_of
from pytest_peaks.auth.model import Account
from pytest_peaks.auth.settings import AuthSettings
from pytest_peaks.auth.store import Store, account_label, keyed_accounts
from pytest_peaks.errors import NoAccountError
from pytest_peaks.session import processes
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.reservations import Reservations, allocating
from pytest_peaks.session.spec import Run

KIND = "accounts"
# Between two looks at who has given one back, in seconds.
BEAT = 0.1


class Accounts:
    """The accounts that one process has, held until it ends or gives them back.

    :param offered: what a project has for a login; None if it has no accounts.
    :param say: tells the user what is being waited for.
    """

    def __init__(
        self,
        run: Run,
        store: Store,
        offered: Callable[[str], Sequence[object] | None],
        say: Callable[[str], None],
    ) -> None:
        self._run = run
        self._store = store
        self._offered = offered
        self._say = say
        self._held: dict[str, tuple[object, str]] = {}

    def of(self, name: str, settings: AuthSettings) -> tuple[object, str]:
        """This process's account of a login, and the key of its file; ``(None, "")`` if it has no accounts.

        :raises NoAccountError: every one is taken, and none was given back in time.
        """
        if name not in self._held:
            offered = self._offered(name)
            self._held[name] = (None, "") if offered is None else self._one_of(name, offered, settings)
        return self._held[name]

    def close(self) -> None:
        """Give them back. Idempotent."""
        if any(key for _, key in self._held.values()):
            with allocating() as runtime:
                Reservations(runtime, KIND).drop_of(ProcessIdentity.of_self())
        self._held.clear()

    def _one_of(self, name: str, offered: Sequence[object], settings: AuthSettings) -> tuple[object, str]:
        accounts = keyed_accounts(offered)
        first = min(self._run.slot, len(accounts))
        taken: list[tuple[object, str]] = []

        def one_is_free() -> bool:
            for account, key in [*accounts[first:], *accounts[:first]]:
                if self._take(name, key):
                    taken.append((Account(account) if type(account) is dict else account, key))
                    return True
            return False

        if not one_is_free() and accounts and settings.accounts == "wait":
            self._say(f"{self._run.worker} waits for an account of {name!r}; all {len(accounts)} are taken")
            processes.wait_until(one_is_free, settings.wait, pause=BEAT)
        if taken:
            return taken[0]
        labels = ", ".join(account_label(account, number) for number, (account, _) in enumerate(accounts))
        raise NoAccountError(
            f"all {len(accounts)} accounts of auth {name!r} are taken by other workers ({labels or 'none'})",
            hint=f'start at most {len(accounts)} workers, or set accounts = "wait" in [tool.peaks.auth.{name}]',
        )

    def _take(self, name: str, key: str) -> bool:
        me = ProcessIdentity.of_self()
        with allocating() as runtime:
            held = Reservations(runtime, KIND)
            place = key_of(self._store.path(name, key))
            holder = held.holder(place)
            if holder is not None and holder[0] != me:
                return False
            held.take(place, me, self._run.uid)
            return True
