"""Compiles every JSON Schema of a directory in llguidance and in llama.cpp's converter; prints errors by file as JSON."""

import json
import pathlib
import subprocess
import sys

from llguidance import LLMatcher


def llguidance(path):
    grammar = LLMatcher.grammar_from_json_schema(path.read_text(encoding="utf-8"))
    is_error, messages = LLMatcher.validate_grammar_with_warnings(grammar)
    return "; ".join(messages) if is_error else ""


files = sorted(pathlib.Path(sys.argv[1]).glob("*.json"))
converter = pathlib.Path(__file__).with_name("converter")
converted = subprocess.run([converter, *files], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
assert len(converted) == len(files), converted
errors = {path.stem: {"llguidance": llguidance(path), "llama.cpp": error} for path, error in zip(files, converted)}
print(json.dumps(errors))
