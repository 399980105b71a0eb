"""The main job: every worker has a browser of its own, whatever the number of workers and their schedule."""

from __future__ import annotations

import json

import pytest
from leaks import Surroundings

WHO = """
    import json, os, pathlib, pytest

    @pytest.mark.parametrize("number", range({tests}))
    def test_who(peaks_session, peaks_page, peaks_slot, worker_id, number):
        peaks_page.set_content("<h1>hello</h1>")
        assert peaks_page.text_content("h1") == "hello"
        facts = dict(slot=peaks_slot, port=peaks_session.port, pid=peaks_session.pid, worker=worker_id,
                     profile=str(peaks_session.user_data_dir), name=peaks_session.name,
                     browser=peaks_session.browser_name, endpoint=peaks_session.endpoint)
        folder = pathlib.Path({folder!r})
        (folder / f"{{worker_id}}-{{number}}.json").write_text(json.dumps(facts))
        assert peaks_session.slot == peaks_slot
"""


def who(project: pytest.Pytester, tests: int) -> None:
    project.mkdir("facts")
    project.makepyfile(WHO.format(tests=tests, folder=str(project.path / "facts")))


def facts(project: pytest.Pytester) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted((project.path / "facts").iterdir())]


OTHERS = ("loadscope", "loadfile", "worksteal")


@pytest.mark.parametrize(
    "schedule", ["load", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_each_worker_has_its_own_slot_port_profile_and_process(
    project: pytest.Pytester, surroundings: Surroundings, schedule: str
) -> None:
    who(project, 8)
    result = project.runpytest_subprocess("-n", "4", "--dist", schedule)
    result.assert_outcomes(passed=8)
    by_worker: dict[object, set[tuple[object, ...]]] = {}
    for fact in facts(project):
        by_worker.setdefault(fact["worker"], set()).add(
            (fact["slot"], fact["port"], fact["pid"], fact["profile"])
        )
    assert all(len(seen) == 1 for seen in by_worker.values()), "a worker changed its browser between tests"
    seen = [next(iter(values)) for values in by_worker.values()]
    for position, what in enumerate(("slot", "port", "process", "profile")):
        values = [facts[position] for facts in seen]
        assert len(set(values)) == len(values), f"two workers share a {what}"
    assert {slot for slot, *_ in seen} <= set(range(4))
    assert all(port in surroundings.ports for _, port, *_ in seen)
