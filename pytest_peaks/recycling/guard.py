"""What a test does to its page and context that can't be undone cheaply: noted when it is asked for.

Playwright has no list of what was done to a context. So the objects that a test is given are watched while the
test has them: each public name that is not known to be harmless, new ones of a later Playwright included,
taints the context. What is undone by one call (routes, listeners, the size of the window) is noted together
with that call.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_peaks.recycling.watching import Watcher, aside

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page, Request

# What has no effect beyond the document, or one that a reset takes back.
PAGE = frozenset(
    """
    add_script_tag add_style_tag aria_snapshot bring_to_front check clear_console_messages clear_page_errors
    click console_messages content context dblclick dispatch_event drag_and_drop eval_on_selector
    eval_on_selector_all evaluate evaluate_handle expect_console_message expect_download expect_event
    expect_navigation expect_popup expect_request expect_request_finished expect_response expect_websocket
    expect_worker fill focus frame frame_locator frames get_attribute get_by_alt_text get_by_label
    get_by_placeholder get_by_ref get_by_role get_by_test_id get_by_text get_by_title go_back go_forward goto
    hide_highlight hover inner_html inner_text input_value is_checked is_closed is_disabled is_editable
    is_enabled is_hidden is_visible keyboard local_storage locator main_frame mouse on once opener page_errors
    pdf press query_selector query_selector_all reload remove_listener request request_gc requests route
    screenshot select_option session_storage set_checked set_content set_input_files set_viewport_size tap
    text_content title touchscreen type uncheck unroute unroute_all url viewport_size wait_for_event
    wait_for_function wait_for_load_state wait_for_selector wait_for_timeout wait_for_url workers
    """.split()  # noqa: SIM905 - a list of names
)
CONTEXT = frozenset(
    """
    add_cookies background_pages browser clear_cookies clear_permissions cookies expect_console_message
    expect_event expect_page grant_permissions is_closed on once pages remove_listener request route
    service_workers storage_state unroute unroute_all wait_for_event
    """.split()  # noqa: SIM905 - a list of names
)
KEYBOARD = frozenset(["insert_text", "press", "type"])
MOUSE = frozenset(["click", "dblclick", "move", "wheel"])
TOUCHSCREEN = frozenset(["tap"])
REQUEST = frozenset(
    """
    add_cookies clear_cookies cookies delete fetch get head patch post put storage_state
    """.split()  # noqa: SIM905 - a list of names
)
# Not `contexts`: through them a test reaches what others have.
BROWSER = frozenset(["browser_type", "is_connected", "new_context", "new_page", "remove_listener", "version"])
HARMLESS = {
    "Page": PAGE,
    "BrowserContext": CONTEXT,
    "Keyboard": KEYBOARD,
    "Mouse": MOUSE,
    "Touchscreen": TOUCHSCREEN,
    "APIRequestContext": REQUEST,
    "Browser": BROWSER,
}
PARTS = ("keyboard", "mouse", "touchscreen", "request")
# A listener for one of these changes what the browser does.
CONSEQUENTIAL = ("dialog", "filechooser")
# What leads to a call that moves the mouse.
MOVES = frozenset(
    """
    check click dblclick drag_and_drop eval_on_selector evaluate_handle frame frame_locator frames
    get_by_alt_text get_by_label get_by_placeholder get_by_ref get_by_role get_by_test_id get_by_text
    get_by_title hover locator main_frame move query_selector query_selector_all select_option set_checked tap
    uncheck wait_for_function wait_for_selector
    """.split()  # noqa: SIM905 - a list of names
)


class Guard:
    """Watches over one page and its context while a test has them.

    :param earlier: the requests in the page's log that are not this test's; None for a new page.
    :param resizable: whether ``set_viewport_size`` with the old size takes back all of another one.
    :ivar taints: what was done that only a new context undoes.
    :ivar reaches_all: whether the test may have changed the browser's other contexts.
    :ivar granted: whether permissions are to be taken back.
    """

    def __init__(
        self, context: BrowserContext, page: Page, earlier: frozenset[Request] | None, *, resizable: bool
    ) -> None:
        self.taints: list[str] = []
        self.reaches_all = False
        self.granted = False
        self._earlier = earlier
        self._size = page.viewport_size if resizable else None
        self._page = page
        self._undo: dict[object, Callable[[], object]] = {}
        self._moved = earlier is None
        self._watcher = Watcher(self._asked_for, self._changed)
        # All at once: a test may keep one of them for the next, which does not ask for it again.
        for target in (context, page, context.browser, *(getattr(page, part) for part in PARTS)):
            if target is not None:
                self._watcher.watch(target)

    def let_go(self) -> None:
        """Watch no longer. Idempotent."""
        self._watcher.end()

    def undo(self) -> None:
        """Undo what one call undoes.

        :raises playwright.sync_api.Error: the browser does not answer.
        """
        for undo in self._undo.values():
            undo()
        self._undo.clear()

    def _changed(self, target: Any, name: str) -> None:
        self.taints.append(f"{type(target).__name__}.{name} was set")

    def _asked_for(self, target: Any, name: str, value: Any) -> Any:
        kind = type(target).__name__
        if name not in HARMLESS[kind]:
            self.taints.append(f"{kind}.{name}")
            self.reaches_all |= kind == "Browser"
        self.granted |= name == "grant_permissions"
        if name == "wheel" and not self._moved:
            # Playwright still has it where an earlier test left it.
            with aside():
                target.move(0, 0)
        self._moved |= name in MOVES
        if name in _CALLS and kind in ("Page", "BrowserContext"):
            return functools.wraps(value)(functools.partial(_CALLS[name], self, target, value))
        return value

    def _listener(self, target: Any, call: Any, event: str, f: Any) -> Any:
        __tracebackhide__ = True
        if event in CONSEQUENTIAL:
            self.taints.append(f"a listener for {event}")
        else:
            self._undo[object()] = lambda: _remove(target, event, f)
        return call(event, f)

    def _event(self, _target: Any, call: Any, event: str, *rest: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        if event in CONSEQUENTIAL:
            self.taints.append(f"a listener for {event}")
        return call(event, *rest, **options)

    def _route(self, target: Any, call: Any, *rest: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        self._undo["routes", target] = lambda: target.unroute_all(behavior="ignoreErrors")
        return call(*rest, **options)

    def _resize(self, _target: Any, call: Any, *rest: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        size = self._size
        if size is None:
            self.taints.append("Page.set_viewport_size")
        else:
            self._undo["size"] = lambda: self._page.set_viewport_size(size)
        return call(*rest, **options)

    def _requests(self, _target: Any, call: Any) -> Any:
        __tracebackhide__ = True
        earlier = self._earlier or ()
        return [request for request in call() if request not in earlier]


_CALLS: dict[str, Callable[..., Any]] = {
    "on": Guard._listener,
    "once": Guard._listener,
    "expect_event": Guard._event,
    "wait_for_event": Guard._event,
    "route": Guard._route,
    "set_viewport_size": Guard._resize,
    "requests": Guard._requests,
}


def _remove(target: Any, event: str, handler: Any) -> None:
    with contextlib.suppress(KeyError, ValueError):  # the test has removed it, or it was called already
        target.remove_listener(event, handler)
