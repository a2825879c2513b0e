"""Runs the tests of a library on a directory, and prints the result of each.

    python3 judge.py DIRECTORY PATH SECONDS

PATH is the place of the package within the directory. Prints {"is_over": ..., "tests": {name: message or null}}: null is a
passed test; skipped tests are left out. A run that takes too long is killed, and `is_over` is false.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree


def outcomes(report):
    tests = {}
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        if case.find("skipped") is not None:
            continue
        trouble = [case.find("error"), case.find("failure")]
        message = next((found.get("message") or found.text or "unknown" for found in trouble if found is not None), None)
        # A test is listed twice if its clean-up fails too, or if it has parts.
        name = f"{case.get('classname')}::{case.get('name')}"
        tests[name] = tests.get(name) or message and cause(message, next(f for f in trouble if f is not None).text)
    return tests


def cause(message, text):
    """Returns the message; in place of "collection failure" and the like, the error behind it."""
    errors = [line[1:].strip() for line in (text or "").splitlines() if line.startswith("E ")]
    return (errors[-1] if errors and "failure" in message.split(":")[0] else message)[:300]


def main(directory, path, seconds):
    with tempfile.TemporaryDirectory() as beside:
        report = pathlib.Path(beside) / "report.xml"
        environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(directory, path).resolve()),
                       "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--continue-on-collection-errors",
                   "--tb=short", f"--rootdir={directory}", "-c", os.devnull, f"--junitxml={report}", "tests"]
        with subprocess.Popen(command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, start_new_session=True) as run:
            try:
                run.wait(timeout=float(seconds))
                is_over = True
            except subprocess.TimeoutExpired:
                is_over = False
                os.killpg(run.pid, signal.SIGKILL)
        tests = outcomes(report) if report.exists() else {}
    print(json.dumps({"is_over": is_over, "tests": tests}))


if __name__ == "__main__":
    main(*sys.argv[1:])
