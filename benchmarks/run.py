"""The refund run here and on LangGraph, one after the other: JSON lines, then a table of medians with their ratios.

    make bench [ARGS="--runs 150 --tries 3 --kill 60 --parked 10000"]

Each figure is the median of at least three tries, with the lowest and the highest.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RIVAL = HERE.parent / ".bench" / "bin" / "python"
FIGURES = (
    "runs_per_s", "statements", "of_them_begin_commit", "wal_kb", "worker_cpu_ms", "database_cpu_ms", "cpu_ms",
    "resume_p50_ms", "resume_p95_ms",
)  # fmt: skip
Rows = list[dict[str, Any]]


def main() -> None:
    told = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    told.add_argument("--runs", type=int, default=150)
    told.add_argument("--tries", type=int, default=3)
    told.add_argument("--resumes", type=int, default=40)
    told.add_argument("--kill", type=int, default=0, help="So many runs while workers are killed.")
    told.add_argument("--parked", type=int, default=0, help="So many runs that wait.")
    arguments = told.parse_args()
    if arguments.tries < 3:
        told.error("a median takes three tries at least")
    if not RIVAL.exists():
        sys.exit("LangGraph's environment is missing: make .bench/.complete")
    given = ["--runs", arguments.runs, "--tries", arguments.tries, "--resumes", arguments.resumes, "--workers", 1, 2]
    rows = measured(sys.executable, "refund.py", *given) + measured(str(RIVAL), "langgraph_refund.py", *given)
    if arguments.kill:
        measured(sys.executable, "refund.py", "--kill", "--runs", arguments.kill)
    if arguments.parked:
        measured(sys.executable, "refund.py", "--parked", arguments.parked, "--resumes", arguments.resumes)
    print(table(rows))


def measured(python: str, file: str, *given: object) -> Rows:
    command = [python, str(HERE / file), *map(str, given)]
    rows = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        for line in process.stdout or ():
            print(line, end="", flush=True)
            rows.append(json.loads(line))
    if process.returncode:
        sys.exit(f"{file} ended with {process.returncode}.")
    return rows


def table(rows: Rows) -> str:
    """Medians with the lowest and the highest, and the ratio of ours to the other's."""
    by_case: dict[tuple[int, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for name in FIGURES:
            by_case[row["workers"], name][row["side"]].append(row[name])
    lines = ["", "| Workers | Figure | Countersign | LangGraph | Ratio |", "|---|---|---|---|---|"]
    for (workers, name), sides in sorted(by_case.items(), key=lambda item: (item[0][0], FIGURES.index(item[0][1]))):
        ours, theirs = sides["countersign"], sides["langgraph"]
        rival = statistics.median(theirs)
        ratio = f"{statistics.median(ours) / rival:.2f}" if rival else "-"
        lines.append(f"| {workers} | {name} | {said(ours)} | {said(theirs)} | {ratio} |")
    return "\n".join(lines)


def said(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


if __name__ == "__main__":
    main()
