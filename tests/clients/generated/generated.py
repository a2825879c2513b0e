"""Validates the OpenAPI document of a daemon, generates a client from it, and runs a board with that client.

    python generated.py URL TOKEN

TOKEN is an administrator's. openapi-python-client generates the client, openapi-spec-validator checks the document.
"""

import json
import pathlib
import subprocess
import sys
import urllib.request

from openapi_spec_validator import validate

BLUEPRINT = """
blueprint: 1
name: generated
state:
  schema: {type: object, properties: {steps: {type: array, items: {type: integer}}, request: {}}}
  initial: {steps: []}
workers:
  outside:
    agent: remote
    reads: [/steps]
    writes: [{path: /steps/-, ops: [add], approval: {by: editor, expires: 1h}}]
  editor: {agent: human}
rules:
  - {name: begin, trigger: start, run: outside}
done: {when: size(state.steps) > 0}
"""


def generate(url, token):
    request = urllib.request.Request(url + "/v1/openapi.json", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as response:
        description = json.load(response)
    validate(description)
    pathlib.Path("description.json").write_text(json.dumps(description))
    pathlib.Path("settings.json").write_text(json.dumps({"post_hooks": []}))
    command = [pathlib.Path(sys.executable).with_name("openapi-python-client"), "generate", "--path", "description.json"]
    command += ["--meta", "none", "--output-path", "patchboard_client", "--overwrite", "--config", "settings.json"]
    command += ["--fail-on-warning"]
    subprocess.run(command, check=True)
    sys.path.insert(0, ".")
    return sum(len(methods) for methods in description["paths"].values())


def main():
    url, token = sys.argv[1:]
    operations = generate(url, token)
    from patchboard_client import AuthenticatedClient
    from patchboard_client.api.boards import create_board, get_board
    from patchboard_client.api.history import get_state, list_records
    from patchboard_client.api.leases import answer_call, lease_call, list_leases
    from patchboard_client.api.people import answer_question, list_questions
    from patchboard_client.api.storage import archive_board, delete_board, restore_board
    from patchboard_client.api.tokens import create_token
    from patchboard_client.models import AnswerCallRequest, AnswerQuestionRequest, CreateBoardRequest, CreateTokenRequest
    from patchboard_client.models import LeaseRequest, Problem

    def done(answer):
        if answer is None or isinstance(answer, Problem):
            raise SystemExit(f"the daemon answered {answer}")
        return answer

    client = AuthenticatedClient(base_url=url, token=token, raise_on_unexpected_status=True)
    board = done(create_board.sync(client=client, body=CreateBoardRequest(source=BLUEPRINT))).board
    missing = get_board.sync(client=client, board="01990000-0000-7000-8000-000000000000")
    assert isinstance(missing, Problem) and missing.code == "no_such_board", missing
    call = done(lease_call.sync(client=client, board=board, body=LeaseRequest(worker="outside", wait=20)))
    assert done(list_leases.sync(client=client, board=board)).calls, "the call is listed"
    patch = [{"op": "add", "path": "/steps/-", "value": 1}]
    reply = AnswerCallRequest(worker="outside", patch=patch)
    done(answer_call.sync(client=client, board=board, lease=call.lease, body=reply))
    person = done(create_token.sync(client=client, body=CreateTokenRequest(scope="person:editor"))).token
    editor = AuthenticatedClient(base_url=url, token=person, raise_on_unexpected_status=True)
    question = done(list_questions.sync(client=editor)).questions[0]
    agreed = AnswerQuestionRequest(agrees=True, digest=question.digest)
    done(answer_question.sync(client=editor, board=board, seq=question.seq, body=agreed))
    assert done(get_state.sync(client=client, board=board)).state["steps"] == [1]
    records = len(done(list_records.sync(client=client, board=board)).records)
    assert done(get_board.sync(client=client, board=board)).status == "done"
    done(archive_board.sync(client=client, board=board))
    done(restore_board.sync(client=client, board=board))
    done(delete_board.sync(client=client, board=board))
    assert isinstance(get_board.sync(client=client, board=board), Problem)
    print(f"operations: {operations}, records: {records}")


main()
