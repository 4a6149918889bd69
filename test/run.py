#!/usr/bin/env python3
"""Runs the test suites and prints one closing line: N passed, N failed, N skipped.

Usage: test/run.py [--only SUITE[,SUITE]] [--salt LINE[,LINE]] [--full] [--list]

Each suite's whole output goes to build/test-logs/SUITE.log; of what fails, the
end is printed, and of the fault matrix its table. Without --full the matrix is
a sample, and the soak is short. Standard library only. Exit status: 0 all
passed, 1 something failed, 2 usage.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import time
import xml.etree.ElementTree as xml

REPO = pathlib.Path(__file__).resolve().parent.parent
LOGS = REPO / "build" / "test-logs"

Result = collections.namedtuple("Result", "passed failed skipped")


def go(name, args, env=None):
    """Runs go test and counts its tests; a package that doesn't build counts as one failure."""
    log = LOGS / f"{name}.log"
    passed, failed, skipped, outputs = 0, [], [], {}
    with open(log, "w") as out:
        proc = subprocess.Popen(
            ["go", "test", "-json", *args], cwd=REPO, env={**os.environ, **(env or {})},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for line in proc.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                out.write(line)
                continue
            key = (event.get("Package", event.get("ImportPath", "")), event.get("Test", ""))
            if "Output" in event:
                out.write(event["Output"])
                out.flush()
                outputs.setdefault(key, collections.deque(maxlen=60)).append(event["Output"])
                if event["Output"].startswith("--- "):
                    progress(f"{name}: {event['Output'].strip()}")
            action = event.get("Action")
            if action in ("build-fail",) or (action == "fail" and not key[1] and not any(f[0] == key[0] for f in failed)):
                failed.append(key)
            elif key[1] and action == "pass":
                passed += 1
                outputs.pop(key, None)
            elif key[1] and action == "fail":
                failed.append(key)
            elif key[1] and action == "skip":
                skipped.append(key)
        code = proc.wait()
    for key in failed:
        print(f"\nFAILED {name}: {key[0]} {key[1]}\n" + "".join(outputs.get(key, ["see " + str(log) + "\n"])))
    if code != 0 and not failed:
        failed.append((name, ""))
        print(f"\nFAILED {name}: exit status {code}, see {log}")
    return Result(passed, len(failed), [f"{name}: {k[1]}" for k in skipped])


def pytest(name, command, env=None):
    """Runs a script that runs pytest with --junitxml=$JUNIT and counts its tests."""
    log, report = LOGS / f"{name}.log", LOGS / f"{name}.xml"
    report.unlink(missing_ok=True)
    with open(log, "w") as out:
        code = subprocess.call(
            command, cwd=REPO, env={**os.environ, "JUNIT": str(report), **(env or {})}, stdout=out, stderr=subprocess.STDOUT,
        )
    if not report.exists():
        print(f"\nFAILED {name}: exit status {code}\n" + tail(log))
        return Result(0, 1, [])
    total = failures = 0
    skips = []
    for case in xml.parse(report).getroot().iter("testcase"):
        total += 1
        if case.find("failure") is not None or case.find("error") is not None:
            failures += 1
        elif case.find("skipped") is not None:
            skips.append(f"{name}: {case.get('name')}")
    if code != 0:
        failures = max(failures, 1)
        print(f"\nFAILED {name}: exit status {code}\n" + tail(log))
    return Result(total - failures - len(skips), failures, skips)


def script(name, command, env=None):
    """Runs a script that is one check: it passes with exit status 0."""
    log = LOGS / f"{name}.log"
    with open(log, "w") as out:
        code = subprocess.call(command, cwd=REPO, env={**os.environ, **(env or {})}, stdout=out, stderr=subprocess.STDOUT)
    if code != 0:
        print(f"\nFAILED {name}: exit status {code}\n" + tail(log))
    return Result(int(code == 0), int(code != 0), [])


def tail(path, lines=60):
    return "".join(open(path, errors="replace").readlines()[-lines:])


def progress(text):
    if sys.stdout.isatty() or os.environ.get("CI"):
        print("  " + text, flush=True)


def venv(line):
    """The lab's venv with a Salt line, made where it is missing."""
    return subprocess.check_output(["go", "run", "./test/lab/cmd/lab", "venv", "--salt", line], cwd=REPO, text=True).strip()


def common(lines):
    """The suites that need no Salt line of their own, in the order in which they run."""
    return {
        "unit": lambda: go("unit", ["./..."]),
        "simulation": lambda: go("simulation", ["-count=1", "-timeout", "20m", "./test/sim"], {"ODUFLOW_SCHEDULES": "20000"}),
        "openapi": lambda: pytest("openapi", ["bash", "test/openapi/run.sh"]),  # and the shims
        "fuzz": lambda: script("fuzz", ["bash", "test/fuzz.sh", "3s"]),
    }


def on_salt(line, name, packages, *more, timeout="30m", **env):
    """Runs the tests of some packages on a Salt line."""
    where = {"ODUFLOW_SALT": line, "ODUFLOW_SALT_VENV": venv(line), "ODUFLOW_SALT_PYTHON": venv(line) + "/bin/python"}
    return go(f"{name}-{line}", ["-tags", "salt", "-count=1", "-timeout", timeout, *more, *packages], {**where, **env})


def of_line(line):
    """The suites that run on one Salt line, in the order in which they run."""
    return {
        f"e2e-{line}": lambda: on_salt(line, "e2e", ["./test/e2e/..."]),
        f"statelang-{line}": lambda: on_salt(line, "statelang", ["./test/statelang/..."], ODUFLOW_DIFFERENTIAL="100000"),
        f"adapters-{line}": lambda: on_salt(
            line, "adapters", ["./internal/saltreq/...", "./internal/eventbus/...", "./internal/saltconfig/..."], "-run", "Real|AgreesWithSalt"),
    }


def breaking(lines, full):
    """
    The suites that break real processes, in the order in which they run. What
    they look at has deadlines of its own (a prepare's 20 s, a ticket's 120 s),
    so nothing else runs beside them.
    """

    def faults(line):
        table = REPO / "build" / f"faults-{line}.txt"
        table.unlink(missing_ok=True)
        result = on_salt(
            line, "faults", ["./test/faults/..."], timeout="90m" if full else "30m", ODUFLOW_FAULTS="all" if full else "")
        if table.exists():
            print("\n" + table.read_text(), flush=True)
        return result

    suites = {}
    for line in lines:
        suites[f"minion-{line}"] = lambda line=line: on_salt(line, "minion", ["./test/minionside/..."])
        suites[f"faults-{line}"] = lambda line=line: faults(line)
    suites["soak"] = lambda: go(
        "soak", ["-tags", "salt", "-count=1", "-timeout", "15m", "./test/soak"], {"ODUFLOW_SOAK_SECONDS": "120" if full else "40"})
    return suites


def in_turn(chosen):
    """Runs suites one after the other and gives their results."""
    results = []
    for name, run in chosen.items():
        began = time.monotonic()
        print(f"{name} ...", flush=True)
        result = run()
        print(f"{name}: {result.passed} passed, {result.failed} failed, {len(result.skipped)} skipped in {time.monotonic() - began:.0f} s", flush=True)
        results.append(result)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--salt", default="3006,3008", help="Salt lines, e.g. 3006,3007,3008")
    parser.add_argument("--only", help="suites, or beginnings of their names")
    parser.add_argument("--full", action="store_true", help="all of the fault matrix, and two minutes of soak")
    parser.add_argument("--list", action="store_true", help="list the suites")
    options = parser.parse_args()
    LOGS.mkdir(parents=True, exist_ok=True)
    lines = options.salt.split(",")
    wanted = tuple(options.only.split(",")) if options.only else ("",)
    # What is common runs first; then the Salt lines run side by side, since most
    # of their time somebody waits for a Salt process; and last, one after the
    # other, what breaks processes.
    lanes = [common(lines), *(of_line(line) for line in lines), breaking(lines, options.full)]
    lanes = [{name: run for name, run in lane.items() if name.startswith(wanted)} for lane in lanes]
    if not any(lanes):
        parser.error(f"no suite begins with any of {', '.join(wanted)}")
    if options.list:
        print("\n".join(name for lane in lanes for name in lane))
        return 0
    for line in lines:
        if any(name.endswith("-" + line) for lane in lanes for name in lane):
            venv(line)  # before two of them want to make it
    results = in_turn(lanes[0])
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        for lane in pool.map(in_turn, lanes[1:-1]):
            results += lane
    results += in_turn(lanes[-1])
    passed = sum(r.passed for r in results)
    failed = sum(r.failed for r in results)
    skipped = [name for r in results for name in r.skipped]
    for name in skipped:
        print(f"skipped {name}")
    print(f"{passed} passed, {failed} failed, {len(skipped)} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
