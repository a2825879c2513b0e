"""An agent at a directory that others edit at the same time: workspace.py NAME OTHER RENDEZVOUS SECONDS COMMAND...

The command is a server over stdio. The agent increments `TOTAL = n` in each file, and inserts a line of its own after the
first. It repeats a rejected edit on the basis of the rejection, without another view, unless its reads were lost
(`reads_lost`). Prints the results.
"""

import asyncio
import json
import pathlib
import random
import re
import sys
import time

from mcp import Client, StdioServerParameters, stdio_client

FILES = ["shared.txt", "src/counter.py"]
TRIES = 50


class Agent:
    def __init__(self, client, name):
        self.client, self.name = client, name
        self.random = random.Random(name)
        self.counted = {file: 0 for file in FILES}
        self.inserted, self.refused, self.codes = [], 0, set()
        self.under_way = None

    async def call(self, tool, **arguments):
        return await asyncio.wait_for(self.client.call_tool(tool, arguments), 60)

    async def view(self, file):
        shown = await self.call("view", path=file)
        assert not shown.is_error, shown
        return shown.content[0].text

    async def insists(self, what, file, text, make):
        """Repeats an edit until it is accepted; each repetition is made from the rejection before it."""
        for _ in range(TRIES):
            tool, arguments = make(text)
            self.under_way = (what, file)
            told = await self.call(tool, path=file, intent=f"{what} of {self.name}", **arguments)
            self.under_way = None
            if not told.is_error:
                return
            code = told.structured_content["code"]
            assert code in ("stale_target", "stale_read", "unseen_target", "reserved", "reads_lost"), told
            if code == "reads_lost":
                text = await self.view(file)
            elif code != "reserved":
                # Takes the changes from the rejection; the rest of the file is unchanged.
                target = told.structured_content["target"]
                text += target.get("diff", "") + target.get("content", "")
            self.refused += 1
            self.codes.add(code)
        raise AssertionError(f"{TRIES} times refused: {text}")

    async def round(self, number):
        file = self.random.choice(FILES)
        text = await self.view(file)
        # Lets others edit in between.
        await asyncio.sleep(self.random.uniform(0, 0.05))

        def count(text):
            # Finds it after a line number, or in a difference; the last one is the newest.
            now = int(re.findall(r"^(?: *\d+\t|[+ ])TOTAL = (\d+)", text, re.MULTILINE)[-1])
            return "str_replace", {"old_str": f"TOTAL = {now}\n", "new_str": f"TOTAL = {now + 1}\n"}

        await self.insists("count", file, text, count)
        self.counted[file] += 1
        if number % 3 == 0:
            line = f"line_{self.name}_{number} = {number}"

            def insert(_):
                return "insert", {"insert_line": 1, "insert_text": line + "\n"}

            await self.insists(line, file, text, insert)
            self.inserted.append([file, line])

    def told(self, is_lost):
        return {
            "name": self.name,
            "counted": self.counted,
            "inserted": self.inserted,
            "refused": self.refused,
            "codes": sorted(self.codes),
            "under_way": self.under_way if is_lost else None,
            "is_lost": is_lost,
        }


async def main():
    name, other, rendezvous, seconds, *command = sys.argv[1:]
    rendezvous = pathlib.Path(rendezvous)
    parameters = StdioServerParameters(command=command[0], args=[*command[1:], "--name", name])
    is_lost, agent = False, None
    try:
        async with Client(stdio_client(parameters)) as client:
            agent = Agent(client, name)
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert {"view", "create", "str_replace", "insert", "delete", "rename", "changes"} <= tools, tools
            await agent.view(FILES[0])
            (rendezvous / name).touch()
            while not (rendezvous / other).exists():
                await asyncio.sleep(0.01)
            until, number = time.monotonic() + float(seconds), 0
            while time.monotonic() < until:
                await agent.round(number)
                number += 1
                (rendezvous / f"{name}.round").write_text(str(number))
            others = await agent.call("changes")
            assert f"{name} (you) changed" in others.content[0].text, others
    except AssertionError:
        raise
    except BaseException as error:
        # Reports a killed server to the test.
        if agent is None or assertion(error):
            raise
        is_lost = True
        print(repr(error), file=sys.stderr)
    print(json.dumps(agent.told(is_lost)))


def assertion(error):
    inner = getattr(error, "exceptions", [])
    return isinstance(error, AssertionError) or any(assertion(one) for one in inner)


asyncio.run(main())
