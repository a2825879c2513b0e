#!/usr/bin/env python3
"""Plays an ALFWorld text game for the worker `environment` of blueprints/alfworld.yaml.

Usage: environment.py GAMES, a directory in which a request's `game` names a directory that holds game.tw-pddl.
Needs: pip install alfworld==0.4.2 textworld==1.7.0 (Linux; no GPU, no network once it is installed).

One request per line on standard input, one reply per line on standard output, until the input ends. The board is the
truth: if the state of the game differs from the board's history, the game is restarted and the history is played. The
program may be restarted at any time, whether or not its last reply was committed.
"""

import json
import os
import pathlib
import sys
import tempfile

STEPS_MAX = 20
# Actions that the game always admits and that win nothing. They are not offered, because small models prefer them.
IDLE = {"examine", "help", "inventory", "look"}
NOTHING = "Nothing happens."
GOAL = "Your task is to:"


class Refusal(Exception):
    """An error that a repetition does not mend."""


class Game:
    """A game, and the actions played so far."""

    def __init__(self, games):
        self.games = pathlib.Path(games).resolve()
        self.name = None
        self.played = []
        self.env = None
        self.now = None

    def go_to(self, name, history):
        """Brings the game to the state after the actions of the history."""
        if self.name == name and self.played == history:
            return
        self.begin(name)
        for action in history:
            self.step(action)

    def begin(self, name):
        path = (self.games / name / "game.tw-pddl").resolve()
        if not path.is_relative_to(self.games) or not path.is_file():
            raise Refusal(f"there is no game {name!r}")
        if self.env is None:
            self.env = make_env()
        self.name, self.played = None, []
        self.env.load(str(path))
        self.now = self.env.reset()
        self.done = self.idle = False
        self.name = name

    def step(self, action):
        # Commands of the game may end with spaces.
        known = {command.strip(): command for command in self.now["admissible_commands"]}
        self.played.append(action)
        self.idle = action not in known
        # A board without checks may choose an inadmissible action: it counts as a step, as in the game itself.
        if not self.idle:
            self.now, _, self.done = self.env.step(known[action])

    @property
    def observation(self):
        return NOTHING if self.idle else self.now["feedback"].strip()

    @property
    def admissible(self):
        commands = sorted(command.strip() for command in self.now["admissible_commands"])
        return [command for command in commands if command.split()[0] not in IDLE]

    @property
    def status(self):
        if self.now["won"]:
            return "won"
        return "lost" if self.done or len(self.played) >= STEPS_MAX else "playing"


def make_env():
    # alfworld requires a directory for data; nothing is read from it.
    os.environ.setdefault("ALFWORLD_DATA", os.path.join(tempfile.gettempdir(), "alfworld"))
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
    from textworld.envs import PddlEnv

    infos = textworld.EnvInfos(feedback=True, admissible_commands=True, won=True)
    return AlfredDemangler(PddlEnv(infos), shuffle=False)


def reply(game, shown):
    """Returns the patch for the beginning, or for the chosen step."""
    name, action = shown["/request/game"], shown.get("/action")
    history = []
    while (past := shown.get(f"/history/{len(history)}/action")) is not None:
        history.append(past)
    if action is None:
        game.go_to(name, history)
        head, _, goal = game.observation.partition(GOAL)
        # Drops the greeting.
        observation = head.strip().split("\n\n")[-1]
        extra = [{"op": "add", "path": "/goal", "value": goal.strip()}] if not history else []
    else:
        if game.name != name or game.played != [*history, action]:
            game.go_to(name, history)
            game.step(action)
        observation = game.observation
        step = {"action": action, "effect": observation != NOTHING, "observation": observation}
        extra = [{"op": "remove", "path": "/action"}, {"op": "add", "path": "/history/-", "value": step}]
    return [
        {"op": "add", "path": "/observation", "value": observation},
        {"op": "replace", "path": "/admissible", "value": game.admissible},
        {"op": "replace", "path": "/status", "value": game.status},
        *extra,
    ]


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: environment.py GAMES")
    # Keeps output of the libraries apart from the replies.
    replies = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    game = Game(sys.argv[1])
    for line in sys.stdin:
        try:
            answer = reply(game, json.loads(line)["shown"])
        except Refusal as why:
            answer = {"error": str(why)}
        replies.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
