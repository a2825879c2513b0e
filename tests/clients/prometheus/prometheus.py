"""Prometheus' own parser against a daemon that runs: prometheus.py URL BOARD

Reads URL/metrics, commits a step on BOARD (of the blueprint "steps"), and reads again. Exits with an error if a series is
malformed or missing, or if a counter does not grow. Sends PATCHBOARD_TOKEN if it is set.
"""

import json
import os
import re
import sys
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

# A counter's family has the name without _total.
WANTED = {
    "patchboard_commits": "counter",
    "patchboard_rejections": "counter",
    "patchboard_records": "counter",
    "patchboard_commit_duration_seconds": "histogram",
    "patchboard_invocation_duration_seconds": "histogram",
    "patchboard_tokens": "counter",
    "patchboard_invocations": "gauge",
    "patchboard_journal_queue": "gauge",
    "patchboard_restarts": "counter",
    "patchboard_breaker_branches": "gauge",
    "patchboard_boards": "gauge",
    "patchboard_http_requests": "counter",
    "patchboard_http_request_duration_seconds": "histogram",
    "patchboard_build_info": "gauge",
    "process_start_time_seconds": "gauge",
}
MOVED = [
    ("patchboard_commits_total", {}),
    ("patchboard_records_total", {"kind": "committed"}),
    ("patchboard_commit_duration_seconds_count", {}),
    (
        "patchboard_http_requests_total",
        {"route": "/v1/boards/{board}/proposals", "method": "POST", "status": "200"},
    ),
]
NAME = re.compile(r"^(patchboard|process)_[a-z0-9_]+$")


def main(url, board):
    before = read(url)
    propose(url, board)
    after = read(url)
    for name, labels in MOVED:
        key = (name, tuple(sorted(labels.items())))
        demand(after.get(key, 0) == before.get(key, 0) + 1, f"{key} went from {before.get(key)} to {after.get(key)}")
    for key, value in before.items():
        is_counter = key[0].endswith(("_total", "_count", "_bucket", "_sum"))
        demand(not is_counter or after.get(key, -1) >= value, f"{key} went back")
    print(f"{len(WANTED)} families as wanted, {len(after)} series")


def read(url):
    """Returns all series by name and labels, after checking them."""
    answer = urllib.request.urlopen(request(f"{url}/metrics"), timeout=10)
    kind = answer.headers["content-type"]
    demand(kind.startswith("text/plain; version=0.0.4"), f"the media type is {kind}")
    families, series = {}, {}
    for family in text_string_to_metric_families(answer.read().decode("utf-8")):
        demand(family.name not in families, f"{family.name} comes twice")
        demand(NAME.match(family.name), f"{family.name} is no name of ours")
        demand(family.documentation.strip(), f"{family.name} has no help")
        families[family.name] = family.type
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            demand(key not in series, f"{key} comes twice")
            series[key] = sample.value
        if family.type == "histogram":
            check_histogram(family)
    for name, kind in WANTED.items():
        demand(families.get(name) == kind, f"{name} is {families.get(name)}, not {kind}")
    demand("unknown" not in families.values(), "a family has no type")
    return series


def check_histogram(family):
    """Checks that buckets never fall, and that the last equals the count."""
    buckets, counts = {}, {}
    for sample in family.samples:
        rest = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
        if sample.name.endswith("_bucket"):
            buckets.setdefault(rest, []).append((float(sample.labels["le"]), sample.value))
        elif sample.name.endswith("_count"):
            counts[rest] = sample.value
    demand(buckets.keys() == counts.keys(), f"{family.name} has buckets without a count")
    for rest, found in buckets.items():
        values = [value for _, value in sorted(found)]
        demand(values == sorted(values), f"buckets of {family.name} {rest} fall")
        demand(max(found)[0] == float("inf") and values[-1] == counts[rest], f"{family.name} {rest} has no last bucket")


def propose(url, board):
    body = {"worker": "walker", "patch": [{"op": "add", "path": "/steps/-", "value": 2}]}
    sent = request(f"{url}/v1/boards/{board}/proposals")
    sent.data = json.dumps(body).encode()
    sent.add_header("content-type", "application/json")
    outcome = json.load(urllib.request.urlopen(sent, timeout=10))
    demand(outcome["outcome"] == "committed", f"the proposal: {outcome}")


def request(url):
    token = os.environ.get("PATCHBOARD_TOKEN")
    return urllib.request.Request(url, headers={"authorization": f"Bearer {token}"} if token else {})


def demand(holds, why):
    if not holds:
        sys.exit(f"prometheus.py: {why}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1].rstrip("/"), sys.argv[2])
