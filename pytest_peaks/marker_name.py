"""What pytest is told of the marker in every run, whether it has browser tests or not."""

from __future__ import annotations

NAME = "peaks_session"
DESCRIPTION = (
    f"{NAME}(name=None, *, auth=None, desk=None, save=False, isolation=None, browser=None, user_data_dir=None, "
    "url=None, device=None, doors=(), mcp_caps=(), mcp_args=(), **context_options): "
    "the browser session of this test. auth is the saved login that it begins with, None for none; desk is the "
    "named identity that the test is, at a desk of the pool, and save=True saves it again if the test passes; "
    "isolation is 'fresh' (a context of its own in the worker's browser), 'recycled' (one that earlier tests had, "
    "proved blank), 'profile' (the worker's kept profile) or 'browser' (a process of its own); user_data_dir is a "
    "profile of yours, kept; url is where the page is when the test gets it; device is what it "
    "emulates, by Playwright's name; doors=('mcp', 'cli') opens an MCP "
    "server on the session, with mcp_caps and mcp_args, and playwright-cli; context_options are those of "
    "Playwright's Browser.new_context, such as viewport or locale. "
    "On a function, class or module; the closest wins, context options merge."
)
