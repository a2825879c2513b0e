"""The official Python SDK takes a worker's seat: mcp_seat.py http|stdio legacy|auto ENDPOINT...

http takes the URL of the endpoint, stdio a command; the token is in PATCHBOARD_TOKEN. Prints the results.
"""

import asyncio
import json
import os
import sys

import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

STATE, LOG = "patchboard://board/state", "patchboard://board/log"


def transport(way, endpoint):
    token = os.environ["PATCHBOARD_TOKEN"]
    if way == "http":
        headers = {"Authorization": f"Bearer {token}"}
        return streamable_http_client(endpoint[0], http_client=httpx2.AsyncClient(headers=headers, timeout=60))
    return stdio_client(
        StdioServerParameters(command=endpoint[0], args=endpoint[1:], env={"PATCHBOARD_TOKEN": token})
    )


async def done(client, tool, /, **arguments):
    """Returns the result of a successful call, whose text equals its structured content."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, (tool, result)
    assert json.loads(result.content[0].text) == result.structured_content, result
    return result.structured_content


async def refused(client, code, tool, /, **arguments):
    """Returns the error of a rejected call."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, (tool, result)
    assert result.structured_content["code"] == code, result
    return result.structured_content


async def fails(code, request):
    """Expects an error of the protocol with a stable code."""
    try:
        await request
    except MCPError as error:
        assert error.error.data["code"] == code, error.error
    else:
        raise AssertionError(f"no error {code}")


async def resource(client, uri):
    read = await client.read_resource(uri, cache_mode="bypass")
    assert read.contents[0].mime_type == "application/json", read
    return json.loads(read.contents[0].text)


def step(value):
    return [{"op": "add", "path": "/steps/-", "value": value}]


async def sit(client):
    assert client.server_info.name == "patchboard", client.server_info
    assert "writer" in client.instructions, client.instructions
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == {"read_view", "propose_patch", "expand", "clarify", "explain_rejection"}, tools
    for tool in tools.values():
        assert tool.description and tool.input_schema and tool.output_schema, tool

    # No rejection yet.
    await refused(client, "no_rejection", "explain_rejection")
    view = await done(client, "read_view", wait=30)
    assert view["asked"] and view["lease"] == "1:1" and "base" not in view, view
    assert view["schema"]["properties"]["patch"], view
    assert "/steps" in view["view"] and "never-to-be-seen" not in json.dumps(view), view
    left_out = next(note for note in range(6) if f"the end of note {note}" not in view["view"])
    place, end = f"/notes/{left_out}", f"the end of note {left_out}"
    # A second call renews the same lease.
    again = await done(client, "read_view", seconds=600)
    assert again["lease"] == "1:1" and again["expires"] > view["expires"], again

    rejection = await refused(client, "value_not_granted", "propose_patch", patch=step(10), lease="1:1")
    assert rejection["stage"] == "authorization" and "read_view" in rejection["help"], rejection
    violation = rejection["violations"][0]
    assert violation["pointer"] == "/steps/-" and violation["found"] == 10 and "9" in json.dumps(violation), violation
    assert rejection["allowed"][0]["path"] == "/steps/-", rejection
    explained = await done(client, "explain_rejection")
    assert explained["code"] == "value_not_granted" and explained["meanings"][0]["meaning"], explained
    assert explained["rejection"]["seq"] == rejection["seq"], explained
    assert explained["rejection"]["rejection"]["violations"] == rejection["violations"], explained
    by_number = await done(client, "explain_rejection", seq=rejection["seq"])
    assert by_number == explained, by_number
    assert (await done(client, "explain_rejection", code="stale_read"))["rejection"] is None
    await refused(client, "unknown_code", "explain_rejection", code="no_such_code")

    # Malformed calls are rejected and change nothing.
    await refused(client, "bad_body", "propose_patch", patch=step(1))
    await refused(client, "bad_body", "propose_patch", patch=step(1), lease="1:2", base=0)
    await refused(client, "bad_body", "propose_patch", lease="1:2", pathc=[])
    await refused(client, "bad_body", "read_view", wait=61)
    await refused(client, "bad_path", "propose_patch", patch=step(1), lease="01:2")
    await refused(client, "path_not_granted", "expand", paths=["/secret"])
    await refused(client, "path_not_granted", "expand", paths=["/no-such-place"])
    await fails("no_such_tool", client.call_tool("approve", {}))
    await fails("no_such_resource", client.read_resource("patchboard://board/secret"))

    view = await done(client, "read_view")
    assert view["lease"] == "1:2" and "value_not_granted" in view["view"], view
    view = await done(client, "expand", paths=[place], lease="1:2")
    assert view["lease"] == "2:1" and end in view["view"], view
    patch = [*step(2), {"op": "replace", "path": "/mood", "value": "busy"}]
    committed = await done(client, "propose_patch", patch=patch, lease="2:1", intent="the first step")
    assert committed["outcome"] == "committed" and committed["version"] == 1, committed
    await refused(client, "token_conflict", "propose_patch", patch=step(3), lease="1:2")

    # Without an open call, it may still propose on the basis of its view.
    view = await done(client, "read_view")
    assert not view["asked"] and view["base"] == 1 and "lease" not in view, view
    assert end in (await done(client, "expand", paths=[place]))["view"]
    mood = [{"op": "replace", "path": "/mood", "value": "idle"}]
    stale = await refused(client, "stale_target", "propose_patch", patch=mood, base=0)
    assert stale["violations"][0]["stale"]["read_at"] == 0, stale
    assert (await done(client, "propose_patch", patch=[], base=1))["outcome"] == "no_op"
    if client.protocol_version >= "2026":
        async with client.listen(resource_subscriptions=[STATE, LOG, "patchboard://board/secret"]) as changes:
            assert changes.honored.resource_subscriptions == [STATE, LOG], changes.honored
            committed = await done(client, "propose_patch", patch=step(4), base=1)
            uris = {(await asyncio.wait_for(anext(changes), 30)).uri for _ in range(2)}
            assert uris == {STATE, LOG}, uris
    else:
        committed = await done(client, "propose_patch", patch=step(4), base=1)
    assert committed["version"] == 2, committed

    listed = [found.uri for found in (await client.list_resources()).resources]
    assert listed == [STATE, LOG], listed
    state = await resource(client, STATE)
    assert state["version"] == 2 and state["whole"], state
    assert state["values"]["/steps"] == [2, 4] and set(state["values"]) == {"/steps", "/mood", *(f"/notes/{note}" for note in range(6))}, state["values"]
    log = await resource(client, LOG)
    own = [entry for entry in log["entries"] if entry["kind"] != "ended"]
    kinds = [entry["kind"] for entry in own]
    told = ["committed", "no_op", "rejected", "late", "committed", "invoked", "expanded", "invoked", "rejected", "invoked"]
    assert kinds == told, kinds
    assert own[4]["intent"] == "the first step", own[4]
    assert [entry["seq"] for entry in log["entries"]] == sorted((entry["seq"] for entry in log["entries"]), reverse=True)
    assert "never-to-be-seen" not in json.dumps(log), log
    print(json.dumps({"version": client.protocol_version, "state": state["values"]["/steps"]}))


async def main():
    way, mode, *endpoint = sys.argv[1:]
    async with Client(transport(way, endpoint), mode=mode) as client:
        await sit(client)


asyncio.run(main())
