"""The refund run on LangGraph with PostgresSaver, measured like `refund.py`. Runs in an environment of its own.

    .bench/bin/python benchmarks/langgraph_refund.py [--runs 150] [--workers 1] [--resumes 40]

Durable after every step (`durability="sync"`). Its workers take turns from a list in Redis, which does less than a task
queue: if a worker dies, nothing recovers the turn it had taken. One thread per worker, and as many workers as measured.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
import traceback
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import redis  # noqa: E402

from benchmarks import refund_work as work  # noqa: E402
from benchmarks import stage as staging  # noqa: E402

WARM_UP = 20
READY, ASKED, DONE, DECIDED = "ready", "asked", "done", "decided"


def main() -> None:
    told = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    told.add_argument("--runs", type=int, default=150)
    told.add_argument("--tries", type=int, default=1)
    told.add_argument("--workers", type=int, nargs="+", default=[1])
    told.add_argument("--concurrency", type=int, default=4)
    told.add_argument("--resumes", type=int, default=40)
    told.add_argument("--statements", action="store_true", help="Print what was sent how often for a run.")
    told.add_argument("--part", default="", choices=["", "work", "decide"], help=argparse.SUPPRESS)
    arguments = told.parse_args()
    if arguments.part == "work":
        work_on(arguments.concurrency)
        return
    if arguments.part == "decide":
        decide_all()
        return
    with staging.stage() as stage:
        environment = {**os.environ, "EFFECTS_URL": stage.database, "REDIS_URL": stage.redis, "PYTHONPATH": str(ROOT)}
        from langgraph.checkpoint.postgres import PostgresSaver

        with PostgresSaver.from_conn_string(stage.database) as saver:
            saver.setup()
        for _ in range(arguments.tries):
            for workers in arguments.workers:
                staging.say(measured(stage, arguments, environment, workers))


def measured(stage: staging.Stage, told: argparse.Namespace, environment: Any, count: int) -> dict[str, Any]:
    file = str(Path(__file__).resolve())
    commands = [[sys.executable, file, "--part", "work", "--concurrency", str(told.concurrency)] for _ in range(count)]
    with ExitStack() as stack:
        watcher = stack.enter_context(stage.watch())
        queue = stack.enter_context(redis.Redis.from_url(stage.redis))
        queue.flushall()
        workers = stack.enter_context(staging.processes(commands, stage.folder, environment))
        decide = [[sys.executable, file, "--part", "decide"]]
        with staging.processes(decide, stage.folder, environment) as [decider]:
            start(queue, WARM_UP)
            staging.until(lambda: queue.llen(DONE) >= WARM_UP, "the runs to warm up with")
            watcher.execute("SELECT pg_stat_statements_reset()")
            before, cpu = staging.spent(stage, watcher), cpu_of(workers)
            beside = staging.cpu_seconds(os.getpid()) + staging.cpu_seconds(decider.pid)
            began = time.monotonic()
            start(queue, told.runs)
            staging.until(lambda: queue.llen(DONE) >= WARM_UP + told.runs, "the runs to end")
            took = time.monotonic() - began
            spent, cpu = staging.spent(stage, watcher).since(before), cpu_of(workers) - cpu
            beside = staging.cpu_seconds(os.getpid()) + staging.cpu_seconds(decider.pid) - beside
            said = staging.top_statements(stage) if told.statements else []
        watched = resumes(watcher, queue, told.resumes)
        per_run = "SELECT count(*) AS n FROM effects GROUP BY run_id, tool"
        [repeated] = watcher.execute(f"SELECT count(*) FROM ({per_run}) AS t WHERE n <> 1").fetchone()  # noqa: S608
        if repeated:
            sys.exit(f"{repeated} tools ran more than once in a run.")
    for calls, query in said:
        print(f"{calls / told.runs:6.2f}  {' '.join(query.split())[:230]}", file=sys.stderr)
    per = {
        "statements": spent.statements / told.runs,
        "of_them_begin_commit": spent.transactional / told.runs,
        "wal_kb": spent.wal / told.runs / 1024,
        "worker_cpu_ms": cpu / told.runs * 1000,
        "database_cpu_ms": spent.database_cpu / told.runs * 1000,
        "cpu_ms": (cpu + spent.database_cpu) / told.runs * 1000,
        "starter_and_decider_cpu_ms": beside / told.runs * 1000,
    }
    return {
        "side": "langgraph", "workers": count, "runs": told.runs, "runs_per_s": round(told.runs / took, 2),
        **{name: round(value, 2) for name, value in per.items()},
        **({"resume_p50_ms": round(staging.percentile(watched, 0.5), 2),
            "resume_p95_ms": round(staging.percentile(watched, 0.95), 2)} if watched else {}),
    }  # fmt: skip


def cpu_of(workers: list["subprocess.Popen[bytes]"]) -> float:
    return sum(staging.cpu_seconds(process.pid) for process in workers)


def start(queue: "redis.Redis", count: int) -> list[str]:
    made = [str(uuid.uuid4()) for _ in range(count)]
    for run_id in made:
        queue.lpush(READY, json.dumps({"run": run_id, "input": work.INPUT}))
    return made


def resumes(watcher: Any, queue: "redis.Redis", count: int) -> list[float]:
    """One run after the other: ms between the decision and the row of the refund."""
    took = []
    for _ in range(count):
        [run_id] = start(queue, 1)
        _, asked = queue.brpop([ASKED])
        decided = time.time()
        queue.lpush(READY, json.dumps({"run": asked.decode(), "decision": "approve"}))
        before = queue.llen(DONE)
        staging.until(lambda: queue.llen(DONE) > before, "a run to end", 0.005)  # noqa: B023
        [paid] = watcher.execute(
            "SELECT extract(epoch FROM at)::float8 FROM effects WHERE run_id = %s AND tool = 'issue_refund'", [run_id]
        ).fetchone()
        took.append((paid - decided) * 1000)
    return took


def decide_all() -> None:
    """The second process: approve every request as it turns up, until told to stop."""
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as queue:
        while True:
            _, asked = queue.brpop([ASKED])
            queue.lpush(READY, json.dumps({"run": asked.decode(), "decision": "approve"}))


# --- The worker ----------------------------------------------------------------------------------


def work_on(concurrency: int) -> None:
    from langgraph.checkpoint.postgres import PostgresSaver
    from psycopg.rows import dict_row
    from psycopg_pool import ConnectionPool

    given = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    with ConnectionPool(os.environ["EFFECTS_URL"], min_size=1, max_size=concurrency, kwargs=given) as pool:
        graph = graph_of(PostgresSaver(pool))
        threads = [threading.Thread(target=take_turns, args=[graph]) for _ in range(concurrency)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def take_turns(graph: Any) -> None:
    from langgraph.types import Command

    with redis.Redis.from_url(os.environ["REDIS_URL"]) as queue:
        while True:
            _, said = queue.brpop([READY])
            turn = json.loads(said)
            config = {"configurable": {"thread_id": turn["run"]}}
            begin: Any = (
                Command(resume=turn["decision"]) if "decision" in turn else {"messages": [("user", turn["input"])]}
            )
            try:
                state = graph.invoke(begin, config, durability="sync")
            except Exception:
                traceback.print_exc()  # into the worker's log; another worker may take the turn
                queue.lpush(READY, said)
                continue
            queue.lpush(ASKED if "__interrupt__" in state else DONE, turn["run"])


def graph_of(saver: Any) -> Any:
    """A model and its tools, each a node, built like LangGraph's own agents."""
    from langchain_core.messages import AIMessage, SystemMessage, ToolMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.types import interrupt

    def calls(*named: tuple[str, dict[str, Any]]) -> Any:
        return AIMessage("", tool_calls=[{"name": name, "args": given, "id": f"call_{name}"} for name, given in named])

    script = [
        calls(("read_order", work.ABOUT_ORDER), ("search_refund_policy", work.ABOUT_POLICY)),
        calls(("draft_refund", work.ABOUT_REFUND)),
        calls(("issue_refund", work.ABOUT_REFUND)),
        AIMessage(work.ANSWER),
    ]
    results = {"read_order": work.ORDER, "search_refund_policy": work.POLICY, "draft_refund": work.DRAFT,
               "issue_refund": work.ISSUED}  # fmt: skip
    system = SystemMessage(work.INSTRUCTIONS)

    def model(state: Any) -> Any:
        asked = [system, *state["messages"]]
        reply = script[sum(isinstance(message, AIMessage) for message in asked)]
        return {"messages": [reply.model_copy(update={"id": None})]}

    def tools(state: Any, config: RunnableConfig) -> Any:
        answers = []
        for call in state["messages"][-1].tool_calls:
            if call["name"] == "issue_refund":
                interrupt({"tool": call["name"], "args": call["args"]})
            work.effect(config["configurable"]["thread_id"], call["name"], call["args"])
            answers.append(ToolMessage(json.dumps(results[call["name"]]), tool_call_id=call["id"]))
        return {"messages": answers}

    def after_model(state: Any) -> str:
        return "tools" if state["messages"][-1].tool_calls else END

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", tools)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", after_model, ["tools", END])
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


if __name__ == "__main__":
    main()
