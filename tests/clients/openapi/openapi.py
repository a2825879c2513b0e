"""Runs schemathesis against a daemon, with the OpenAPI document of that daemon.

    python openapi.py URL TOKEN [--examples N] [--seed S]

TOKEN is an administrator's. The daemon must require tokens, so that routes without them are found. Seed and number of
examples per route have defaults and are printed.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import urllib.request

BLUEPRINT = """
blueprint: 1
name: described
state:
  schema: {type: object, properties: {steps: {type: array, items: {type: integer}}, request: {}}}
  initial: {steps: []}
workers:
  walker:
    agent: script
    script: [[{op: add, path: /steps/-, value: 1}]]
    reads: [/steps]
    writes: [{path: /steps/-, ops: [add]}]
  outside:
    agent: remote
    reads: [/steps]
    writes: [{path: /steps/-, ops: [add]}]
rules:
  - {name: begin, trigger: start, run: walker}
  - {name: more, trigger: {signal: more}, run: outside}
"""


def post(url, token, path, body):
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("token")
    parser.add_argument("--examples", default="20")
    parser.add_argument("--seed", default="1")
    given = parser.parse_args()
    print(f"seed {given.seed}, {given.examples} examples for each route")
    # The first is read and changed, the second may be ended.
    board, other = (post(given.url, given.token, "/v1/boards", {"source": BLUEPRINT})["board"] for _ in range(2))
    # A token to revoke, in place of the client's own.
    victim = post(given.url, given.token, "/v1/tokens", {"scope": "read"})["id"]
    config = f"""
# The kernel's verdict on a patch, a blueprint or a pointer is 404, 409 or 422. Any other 4xx is a fault of the description.
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "401", "403", "404", "409", "413", "422", "429"]

[parameters]
"path.board" = "{board}"
"path.worker" = "walker"
"path.lease" = "1:1"

[[operations]]
include-path-regex = "/(cancel|pause|redact|archive|stop)$"
parameters = {{ "path.board" = "{other}" }}

# Bodies hold any JSON, also numbers that fit no 64-bit integer (400); an administrator's token names no seat.
[[operations]]
include-method = "POST"
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "401", "403", "404", "409", "413", "422", "429"]

[[operations]]
include-path = "/v1/tokens/{{id}}"
parameters = {{ "path.id" = {victim} }}
"""
    pathlib.Path("schemathesis.toml").write_text(config)
    command = [
        pathlib.Path(sys.executable).with_name("schemathesis"),
        "run",
        given.url + "/v1/openapi.json",
        "--header",
        f"Authorization: Bearer {given.token}",
        "--checks",
        "all",
        "--phases",
        "examples,coverage,fuzzing",
        # Leaves out streams, which do not end.
        "--exclude-path-regex",
        "/(events|agui)$",
        "--max-examples",
        given.examples,
        "--seed",
        given.seed,
        "--request-timeout",
        "20",
        "--no-color",
    ]
    return subprocess.run(command, check=False).returncode


sys.exit(main())
