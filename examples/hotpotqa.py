#!/usr/bin/env python3
"""Puts HotpotQA questions to blueprints/evidence-review.yaml, one after another, and reports what came of them.

Each question becomes a request (the question, and its ten paragraphs as title and sentences) and one live run of
`patchboard run`; what a run printed is kept under OUT, and a question that is already there is not asked again, so an
interrupted evaluation goes on where it stopped. The report is a Markdown table on stdout. Needs Python 3 only.

    examples/hotpotqa.py hotpotqa.json --model-url http://127.0.0.1:18080/v1 --model NAME [--count 10] [--out DIR]
"""

import argparse
import collections
import json
import os
import re
import string
import subprocess
import sys
import time

BLUEPRINT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "blueprints", "evidence-review.yaml")


def request(item):
    """The request of one question, in the form that the blueprint asks for."""
    paragraphs = zip(item["context"]["title"], item["context"]["sentences"])
    documents = [{"title": title, "sentences": [s.strip() for s in lines if s.strip()]} for title, lines in paragraphs]
    return {"question": item["question"], "documents": documents}


def run(args, item, number):
    """Runs one question and returns what is known of it; the journal's end stays in the data directory."""
    stem = os.path.join(args.out, f"{number:03}")
    with open(stem + ".request.json", "w", encoding="utf-8") as file:
        json.dump(request(item), file, ensure_ascii=False)
    command = [args.patchboard, "run", BLUEPRINT, "--request", "@" + stem + ".request.json", "--output", "json"]
    command += ["--model-url", args.model_url, "--model", args.model, "--data-dir", stem + ".board"]
    started = time.monotonic()
    with open(stem + ".stderr", "w", encoding="utf-8") as progress:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=progress)
        try:
            output, _ = process.communicate(timeout=args.limit)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
    seconds = time.monotonic() - started
    try:
        result = json.loads(output)
    except ValueError:
        # Killed at the limit, or refused: the exit code and what was written to stderr say which.
        result = {"end": "no result", "state": {}}
    return {"exit": process.returncode, "seconds": round(seconds, 1), "result": result, "refused": refused(stem)}


def refused(stem):
    """How often each stage refused, from the run's progress: `rejected worker #1.1 stage/code ...`."""
    pattern = re.compile(r"^rejected \S+ #\S+ (\w+/\w+)", re.MULTILINE)
    with open(stem + ".stderr", encoding="utf-8") as file:
        return dict(collections.Counter(pattern.findall(file.read())))


def normalised(text):
    """As the HotpotQA scorer compares: lower case, without punctuation, articles and double spaces."""
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def row(number, item, record):
    """One line of the table."""
    result = record["result"]
    state = result["state"]
    answer = state.get("answer", {}).get("text")
    is_match = answer is not None and normalised(answer) == normalised(item["answer"])
    titles = [source["title"] for source in state.get("sources", [])]
    wanted = set(item["supporting_facts"]["title"])
    stages = ", ".join(f"{name} {count}" for name, count in sorted(record["refused"].items()))
    # Of a run that was killed at the limit only its progress is known.
    is_known = bool(state)
    counts = [len(state.get(name, [])) for name in ("sources", "claims", "verified", "refused")]
    return [
        str(number),
        item["answer"],
        "–" if answer is None else answer,
        "yes" if is_match else "no",
        f"{result['end']} ({record['exit']})",
        f"{len(wanted & set(titles))} of {len(wanted)}" if is_known else "?",
        "/".join(str(count) for count in counts) if is_known else "?",
        str(result.get("version", "?")),
        stages or "none",
        str(result.get("calls", "?")),
        str(result.get("tokens", {}).get("total", "?")),
        f"{record['seconds']:.0f}",
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a JSON array of questions in the HotpotQA form")
    parser.add_argument("--model-url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--count", type=int, default=10, help="how many, from the start of the file")
    parser.add_argument("--out", default="hotpotqa-runs", help="where runs are kept")
    parser.add_argument("--limit", type=float, default=360, help="seconds for one question")
    parser.add_argument("--patchboard", default="patchboard", help="the program")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    with open(args.data, encoding="utf-8") as file:
        items = json.load(file)[: args.count]
    heading = ["#", "expected", "given", "match", "end (exit)", "needed documents found"]
    heading += ["sources/claims/verified/refused", "commits", "rejections", "calls", "tokens", "s"]
    rows = []
    for number, item in enumerate(items, 1):
        path = os.path.join(args.out, f"{number:03}.json")
        if not os.path.exists(path):
            record = run(args, item, number)
            # Written beside and renamed, so that an interruption leaves no half of a record.
            with open(path + ".part", "w", encoding="utf-8") as file:
                json.dump(record, file, ensure_ascii=False)
            os.replace(path + ".part", path)
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
        rows.append(row(number, item, record))
        print(f"{number}: {record['result']['end']}, {record['seconds']} s", file=sys.stderr)
    for cells in [heading, ["---"] * len(heading), *rows]:
        print("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")


if __name__ == "__main__":
    main()
