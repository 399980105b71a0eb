"""What one test leaves in its browser, and who may see it."""

from __future__ import annotations

import pytest

# Fills every kind of storage of a page's origin with `mark`, and tells what it finds there.
STORES = """
    DIRTY = '''async mark => {
        document.cookie = `c=${mark}; max-age=3600`;
        localStorage.setItem("k", mark);
        sessionStorage.setItem("k", mark);
        await new Promise((done, fail) => {
            const open = indexedDB.open("db");
            open.onupgradeneeded = () => open.result.createObjectStore("s");
            open.onerror = fail;
            open.onsuccess = () => {
                const write = open.result.transaction("s", "readwrite").objectStore("s").put(mark, "k");
                write.onsuccess = done; write.onerror = fail;
            };
        });
        await (await caches.open("cache")).put("/x", new Response(mark));
        await navigator.serviceWorker.register("/worker.js");
        await navigator.serviceWorker.ready;
        const file = await (await navigator.storage.getDirectory()).getFileHandle("f", {create: true});
        const writable = await file.createWritable();
        await writable.write(mark); await writable.close();
        window.name = mark;
        history.pushState({}, "", "#" + mark);
    }'''
    FIND = '''async () => {
        const databases = await indexedDB.databases();
        let stored = null;
        if (databases.length) stored = await new Promise((done, fail) => {
            const open = indexedDB.open("db");
            open.onerror = fail;
            open.onsuccess = () => {
                const read = open.result.transaction("s").objectStore("s").get("k");
                read.onsuccess = () => done(read.result); read.onerror = fail;
            };
        });
        const cached = await caches.match("/x");
        const files = [];
        for await (const name of (await navigator.storage.getDirectory()).keys()) files.push(name);
        return {
            cookie: document.cookie || null,
            localStorage: localStorage.getItem("k"),
            sessionStorage: sessionStorage.getItem("k"),
            indexedDB: stored,
            cache: cached ? await cached.text() : null,
            serviceWorkers: (await navigator.serviceWorker.getRegistrations()).length || null,
            files: files.join() || null,
            name: window.name || null,
            hash: location.hash || null,
        };
    }'''
    EVERYTHING = set("cookie localStorage sessionStorage indexedDB cache serviceWorkers files".split())

    def found(page, url):
        page.goto(url)
        return {kind: value for kind, value in page.evaluate(FIND).items() if value is not None}
"""


def make(project: pytest.Pytester, site: str, tests: str) -> None:
    project.makepyfile(stores=STORES)
    project.makepyfile(test_it=f"import pytest\nfrom stores import *\nURL = {site!r}\n" + tests)


FRESH = """
@pytest.mark.parametrize("round", range(3))
def test_sees_nothing_and_leaves_everything(peaks_page, peaks_context, peaks_browser, round):
    page, context = peaks_page, peaks_context
    assert context.cookies() == []
    assert context.pages == [page], "a tab of an earlier test"
    assert len(peaks_browser.contexts) == 2, "a context of an earlier test (the browser's own is the other)"
    assert page.url == "about:blank"
    assert found(page, URL) == {}, "storage of an earlier test"
    assert page.evaluate("navigator.permissions.query({name: 'geolocation'}).then(p => p.state)") != "granted"
    assert page.title() == "page", "a route of an earlier test"
    assert page.evaluate("history.length") == 2
    assert page.evaluate("typeof window.left") == "undefined", "an init script of an earlier test"
    assert page.evaluate("typeof window.bound") == "undefined", "a binding of an earlier test"
    assert page.viewport_size == {"width": 1280, "height": 720}
    assert page.evaluate("fetch('/echo-cookies').then(r => r.text())") == ""

    page.evaluate(DIRTY, "mark")
    assert EVERYTHING <= set(found(page, URL)), "the test itself is to be able to leave things"
    context.grant_permissions(["geolocation"])
    context.add_init_script("window.left = 1")
    context.expose_function("bound", lambda: 1)
    context.route("**/*", lambda route: route.fulfill(body="<title>routed</title>", content_type="text/html"))
    context.set_extra_http_headers({"x-left": "1"})
    context.set_offline(True)
    page.set_viewport_size({"width": 300, "height": 300})
    context.new_page()
    peaks_browser.new_context().new_page()
    page.add_init_script("window.onbeforeunload = () => 'stay'")
"""


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_a_fresh_test_sees_nothing_of_earlier_ones(project: pytest.Pytester, site: str, workers: str) -> None:
    make(project, site, FRESH)
    distribution = ["--dist", "each"] if workers == "-n2" else []
    project.runpytest_subprocess(workers, *distribution).assert_outcomes(passed=6 if distribution else 3)


PROFILE = """
import os
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")

@pytest.mark.peaks_session(isolation="profile")
class TestKept:
    def test_1_leaves_everything(self, peaks_page, peaks_context):
        assert found(peaks_page, URL) == {}
        peaks_page.evaluate(DIRTY, WORKER)
        peaks_context.new_page()
        peaks_context.grant_permissions(["geolocation"])
        peaks_context.route("**/*", lambda route: route.abort())

    def test_2_finds_it_but_not_its_tabs_and_routes(self, peaks_page, peaks_context):
        kept = found(peaks_page, URL)
        assert EVERYTHING - {"sessionStorage"} <= set(kept)
        assert "sessionStorage" not in kept, "that belongs to a tab"
        values = {kept[kind] for kind in ("localStorage", "indexedDB", "cache")}
        assert values == {WORKER}, "the profile of another worker"
        assert len(peaks_context.pages) == 2, "the first tab and this test's"
        state = peaks_page.evaluate("navigator.permissions.query({name: 'geolocation'}).then(p => p.state)")
        assert state != "granted"

def test_3_a_fresh_test_sees_nothing_of_the_profile(peaks_page):
    assert found(peaks_page, URL) == {}

@pytest.mark.peaks_session(isolation="browser")
def test_4_nor_does_a_browser_of_its_own(peaks_session, peaks_session_factory):
    assert found(peaks_session.page, URL) == {}
    with peaks_session_factory() as other:
        assert other.pid != peaks_session.pid
        assert other.user_data_dir != peaks_session.user_data_dir
        assert other.port != peaks_session.port
"""


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_a_profile_is_kept_within_its_worker_and_nowhere_else(
    project: pytest.Pytester, site: str, workers: str
) -> None:
    make(project, site, PROFILE)
    distribution = ["--dist", "each"] if workers == "-n2" else []
    project.runpytest_subprocess(workers, *distribution).assert_outcomes(passed=8 if distribution else 4)


def test_named_sessions_of_one_test_share_nothing(project: pytest.Pytester, site: str) -> None:
    make(
        project,
        site,
        """
@pytest.mark.parametrize("isolation", ["fresh", "browser"])
def test_two(peaks_sessions, isolation):
    alice, bob = peaks_sessions("alice", "bob", isolation=isolation)
    assert (alice.name, bob.name) == ("alice", "bob")
    assert peaks_sessions("alice", isolation=isolation) is alice
    for session in (alice, bob):
        assert found(session.page, URL) == {}
        session.page.evaluate(DIRTY, session.name)
    assert found(alice.page, URL)["localStorage"] == "alice"
    assert (alice.pid == bob.pid) == (isolation == "fresh")
    assert (alice.user_data_dir == bob.user_data_dir) == (isolation == "fresh")
""",
    )
    project.runpytest_subprocess("-n0").assert_outcomes(passed=2)


USER_DIR = """
import pathlib, time
@pytest.mark.peaks_session(user_data_dir="profiles/alice", isolation={isolation})
@pytest.mark.parametrize("number", range(2))
def test_dir(peaks_session, number):
    assert peaks_session.user_data_dir == pathlib.Path("profiles/alice").resolve()
    page = peaks_session.page
    assert ("localStorage" in found(page, URL)) == ({earlier} or number > 0)
    page.evaluate(DIRTY, "alice")
"""


@pytest.mark.parametrize("isolation", ["None", "'browser'"])
def test_a_users_own_profile_is_kept_between_runs(
    project: pytest.Pytester, site: str, isolation: str
) -> None:
    for earlier in (False, True):
        make(project, site, USER_DIR.format(isolation=isolation, earlier=earlier))
        project.runpytest_subprocess("-n0").assert_outcomes(passed=2)
    assert (project.path / "profiles" / "alice" / "Default").exists()


def test_two_workers_never_share_a_users_profile(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pathlib, time, pytest

        @pytest.mark.peaks_session(user_data_dir="alice")
        @pytest.mark.parametrize("number", range(2))
        def test_dir(request, number):
            here = pathlib.Path("here")
            here.mkdir(exist_ok=True)
            try:
                request.getfixturevalue("peaks_page")
            finally:
                (here / str(number)).touch()
            while len(list(here.iterdir())) < 2:  # hold it until the other has tried
                time.sleep(0.01)
        """
    )
    result = project.runpytest_subprocess("-n2", "--dist", "load")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*PROFILE_IN_USE: */alice is in use by session *"])
