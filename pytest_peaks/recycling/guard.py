"""What a test does to its page and context that can't be undone cheaply: noted when it is asked for.

Playwright has no list of what was done to a context. So the objects that a test is given belong to a class of
ours while the test has them: each public name that is not known to be harmless, new ones of a later Playwright
included, taints the context. What is undone by one call (routes, listeners, the size of the window) is noted
together with that call.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

# What has no effect beyond the document, or one that a reset takes back.
PAGE = frozenset(
    """
    add_script_tag add_style_tag aria_snapshot bring_to_front check clear_console_messages clear_page_errors
    click console_messages content context dblclick dispatch_event drag_and_drop eval_on_selector
    eval_on_selector_all evaluate evaluate_handle expect_console_message expect_download expect_navigation
    expect_popup expect_request expect_request_finished expect_response expect_websocket expect_worker fill
    focus frame frame_locator frames get_attribute get_by_alt_text get_by_label get_by_placeholder
    get_by_ref get_by_role get_by_test_id get_by_text get_by_title go_back go_forward goto hide_highlight
    hover inner_html inner_text input_value is_checked is_closed is_disabled is_editable is_enabled
    is_hidden is_visible keyboard local_storage locator main_frame mouse on once opener page_errors pause
    pdf press query_selector query_selector_all reload remove_listener request request_gc requests route
    screenshot select_option session_storage set_checked set_content set_input_files set_viewport_size tap
    text_content title touchscreen type uncheck unroute unroute_all url viewport_size expect_event
    wait_for_event wait_for_function wait_for_load_state wait_for_selector wait_for_timeout wait_for_url
    workers
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
REQUEST = frozenset(["delete", "fetch", "get", "head", "patch", "post", "put", "storage_state"])
BROWSER = frozenset(
    ["browser_type", "contexts", "is_connected", "new_context", "new_page", "remove_listener", "version"]
)
# A listener for one of these changes what the browser does.
CONSEQUENTIAL = ("dialog", "filechooser")
PARTS = {"keyboard": KEYBOARD, "mouse": MOUSE, "request": REQUEST, "browser": BROWSER}


class Guard:
    """Watches over one page and its context while a test has them.

    :ivar taints: what was done that only a new context undoes.
    """

    def __init__(self, context: BrowserContext, page: Page) -> None:
        self._watched: list[tuple[Any, Any]] = []
        self._undo: list[Callable[[], object]] = []
        self.taints: list[str] = []
        self._page = page
        self._size = page.viewport_size
        self._watch(context, CONTEXT)
        self._watch(page, PAGE)

    def end(self) -> list[str]:
        """Watch no longer; undo what one call undoes. What taints the context.

        :raises playwright.sync_api.Error: the browser does not answer.
        """
        for watched, kind in self._watched:
            object.__setattr__(watched, "__class__", kind)
        self._watched.clear()
        if not self.taints:
            for undo in self._undo:
                undo()
        self._undo.clear()
        return self.taints

    def _watch(self, target: Any, harmless: frozenset[str]) -> None:
        if any(watched is target for watched, _ in self._watched):
            return
        kind: Any = type(target)
        self._watched.append((target, kind))
        guard = self

        def get(self: Any, name: str) -> Any:
            value = kind.__getattribute__(self, name)
            return value if name.startswith("_") else guard._asked_for(self, name, value, harmless)

        def put(self: Any, name: str, value: object) -> None:
            if not name.startswith("_"):
                guard.taints.append(f"{kind.__name__}.{name} was set")
            kind.__setattr__(self, name, value)

        made = type(
            kind.__name__,
            (kind,),
            {
                "__getattribute__": get,
                "__setattr__": put,
                "__module__": kind.__module__,
                "__doc__": kind.__doc__,
            },
        )
        object.__setattr__(target, "__class__", made)

    def _asked_for(self, target: Any, name: str, value: Any, harmless: frozenset[str]) -> Any:
        if name not in harmless:
            self.taints.append(name)
        elif name in PARTS:
            self._watch(value, PARTS[name])
        elif name in _CALLS:
            return functools.wraps(value)(functools.partial(_CALLS[name], self, target, value))
        return value

    def _listener(self, target: Any, call: Any, event: str, handler: Any) -> Any:
        if event in CONSEQUENTIAL:
            self.taints.append(f"on {event}")
        else:
            self._undo.append(lambda: _remove(target, event, handler))
        return call(event, handler)

    def _event(self, _target: Any, call: Any, event: str, *rest: Any, **options: Any) -> Any:
        if event in CONSEQUENTIAL:
            self.taints.append(f"expect {event}")
        return call(event, *rest, **options)

    def _route(self, target: Any, call: Any, *rest: Any, **options: Any) -> Any:
        self._undo.append(lambda: target.unroute_all(behavior="ignoreErrors"))
        return call(*rest, **options)

    def _resize(self, _target: Any, call: Any, *rest: Any, **options: Any) -> Any:
        if self._size is None:
            self.taints.append("set_viewport_size")
        else:
            size = self._size
            self._undo.append(lambda: self._page.set_viewport_size(size))
        return call(*rest, **options)

    def _goto(self, _target: Any, call: Any, url: str, *rest: Any, **options: Any) -> Any:
        try:
            if urlsplit(url).username is not None:
                self.taints.append("a user in the URL")  # the browser remembers it, and nothing clears that
        except (ValueError, TypeError, AttributeError):
            pass  # the call says what is wrong
        return call(url, *rest, **options)


_CALLS: dict[str, Callable[..., Any]] = {
    "on": Guard._listener,
    "once": Guard._listener,
    "expect_event": Guard._event,
    "wait_for_event": Guard._event,
    "route": Guard._route,
    "set_viewport_size": Guard._resize,
    "goto": Guard._goto,
}


def _remove(target: Any, event: str, handler: Any) -> None:
    with contextlib.suppress(KeyError, ValueError):  # the test has removed it, or it was called already
        target.remove_listener(event, handler)
