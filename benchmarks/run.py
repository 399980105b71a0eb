"""Speed and memory beside what people use today: `python benchmarks/run.py [rounds] [name ...]`.

Without arguments it measures every row of the table in docs/performance.md, in about a quarter of an
hour; names choose rows (`--list` says which there are), a number sets the rounds of each. `ledger` and
`logins` have tables of their own. `--json FILE` keeps all values, `--write FILE` puts the table into
its place in the page FILE.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path

import ledger
import logins
import report
from harness import measure, scratch, site
from rows import EXTRA, rows

OF_THEIR_OWN = {"ledger": ledger.main, "logins": logins.main}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="rounds | name")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    numbers = [int(word) for word in options.words if word.isdigit()]
    names = [word for word in options.words if not word.isdigit()]
    rounds = numbers[0] if numbers else None
    if options.write and names:
        parser.error("--write takes a whole table, so no names")
    for name in [name for name in names if name in OF_THEIR_OWN]:
        OF_THEIR_OWN[name](rounds)
        names.remove(name)
        if not names:
            return
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch())
        found = {row.name: row for row in rows(folder, stack.enter_context(site()), stack)}
        if options.list:
            print("\n".join([*found, *OF_THEIR_OWN]))
            return
        unknown = [name for name in names if name not in found]
        if unknown:
            parser.error(f"no such row: {', '.join(unknown)}; there are {', '.join([*found, *OF_THEIR_OWN])}")
        chosen = [row for row in found.values() if (row.name in names if names else row.name not in EXTRA)]
        machine = report.machine(folder.executable)
        outcomes = [measure(row, rounds) for row in chosen]
    text = f"{report.table(outcomes)}\n\nMeasured {report.machine_line(machine)}"
    print(text)
    if options.json:
        content = {"machine": machine, "rows": [outcome.to_json() for outcome in outcomes]}
        options.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    if options.write:
        report.put(options.write, "main table", text)


if __name__ == "__main__":
    main()
