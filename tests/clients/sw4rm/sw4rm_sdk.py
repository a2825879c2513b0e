"""Prints results of sw4rm-sdk for random votes and workflows, one JSON object per line.

    python sw4rm_sdk.py CASES SEED

Half of the cases are votes ({"votes", "mean", "confidence_weighted", "majority", "entropy", "consensus", "polarised"}), half
workflows ({"nodes", "order", "stages"} or {"nodes", "cycle"}).
"""

import json
import random
import sys

from sw4rm.negotiation_types import NegotiationVote
from sw4rm.voting import (
    ConfidenceWeightedAggregator,
    MajorityVoteAggregator,
    SimpleAverageAggregator,
    VotingAggregator,
)
from sw4rm.workflow import CycleDetectedError, WorkflowDefinition, WorkflowEngine, WorkflowNode

SCORES = ("mean", "min_score", "max_score", "std_dev", "weighted_mean", "vote_count")
AGGREGATORS = {
    "mean": SimpleAverageAggregator,
    "confidence_weighted": ConfidenceWeightedAggregator,
    "majority": MajorityVoteAggregator,
}


def votes(chance):
    def confidence():
        return chance.choice([0.0, 1.0, round(chance.random(), 2), chance.random()])

    def score():
        return chance.choice([0.0, 2.0, 7.0, 10.0, round(chance.uniform(0, 10), 1), chance.uniform(0, 10)])

    spread = chance.random() < 0.5
    common = chance.uniform(2, 8)
    given = [
        {
            "critic_id": f"critic-{number}",
            "score": score() if spread else common + chance.uniform(-2, 2),
            "confidence": confidence(),
            "passed": chance.random() < 0.7,
        }
        for number in range(chance.randint(1, 9))
    ]
    known = [
        NegotiationVote(
            artifact_id="it",
            negotiation_room_id="here",
            strengths=[],
            weaknesses=[],
            recommendations=[],
            **vote,
        )
        for vote in given
    ]
    case = {"votes": given}
    for name, aggregator in AGGREGATORS.items():
        made = aggregator().aggregate(known)
        case[name] = {score: getattr(made, score) for score in SCORES}
    summary = VotingAggregator(SimpleAverageAggregator())
    case["entropy"] = summary.compute_entropy(known)
    case["consensus"] = summary.detect_consensus(known, 0.8)
    case["polarised"] = summary.detect_polarization(known)
    return case


def workflow(chance):
    count = chance.randint(1, 14)
    ids = [f"n{number}" for number in range(count)]
    chance.shuffle(ids)
    # Depends on earlier nodes; sometimes on any, which may make a cycle.
    reach = chance.random() < 0.7
    needs = {
        node: sorted({other for other in (ids[:at] if reach else ids) if other != node and chance.random() < 2 / count})
        for at, node in enumerate(ids)
    }
    nodes = {node: WorkflowNode(node_id=node, agent_id="agent", depends_on=frozenset(needs[node])) for node in ids}
    case = {"nodes": {node: {"dependencies": needs[node]} for node in ids}}
    try:
        engine = WorkflowEngine(WorkflowDefinition(workflow_id="it", nodes=nodes))
        case["order"] = engine.topological_sort()
        case["stages"] = [sorted(stage) for stage in engine.get_execution_plan()]
    except CycleDetectedError as error:
        case["cycle"] = str(error)
    return case


def main():
    cases, seed = int(sys.argv[1]), int(sys.argv[2])
    chance = random.Random(seed)
    for number in range(cases):
        print(json.dumps((votes if number % 2 else workflow)(chance)))


main()
