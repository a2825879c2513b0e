// Follows a board with the AG-UI client until it is done, and prints the document that it has made of the stream as JSON.
//
//   node agui.mjs URL [--break N]
//
// --break N: the connection is destroyed after every N events, and the client goes on with what it has.
import { HttpAgent } from "@ag-ui/client";
import { EventSchema } from "@ag-ui/core/schemas";

const [url, flag, every] = process.argv.slice(2);
if (!url) throw new Error("usage: agui.mjs URL [--break N]");
const breakAfter = flag === "--break" ? Number(every) : Infinity;

// The client only warns where a patch does not apply, and goes on with a document that is wrong.
const warnings = [];
console.warn = (...said) => warnings.push(said.join(" "));

const counts = {};
let broken = 0;
let outcome;

const agent = new HttpAgent({ url, threadId: "a-thread" });
for (let run = 0; outcome === undefined; run += 1) {
  if (run > 3000) throw new Error("no end after so many runs");
  const abortController = new AbortController();
  let seen = 0;
  let hasEnded = false;
  const onEvent = ({ event }) => {
    // What the client itself says of the end of the connection.
    if (abortController.signal.aborted) return;
    EventSchema.parse(event);
    seen += 1;
    counts[event.type] = (counts[event.type] ?? 0) + 1;
    if (event.type === "CUSTOM") counts[event.name] = (counts[event.name] ?? 0) + 1;
    if (event.type === "RUN_FINISHED") {
      hasEnded = true;
      // A board at rest goes on when somebody brings work.
      if (event.result.end !== "quiescent") outcome = event;
    }
    if (seen === breakAfter) {
      broken += 1;
      abortController.abort();
    }
  };
  const ended = agent.runAgent({ abortController }, { onEvent }).catch((error) => {
    if (!abortController.signal.aborted) throw error;
  });
  // Of some connections that are destroyed the client does not say that its run is over.
  const destroyed = new Promise((resolve) => {
    abortController.signal.addEventListener("abort", () => setTimeout(resolve, 100));
  });
  await Promise.race([ended, destroyed]);
  if (!hasEnded && !abortController.signal.aborted) {
    throw new Error(`run ${run} ended without an outcome`);
  }
  await new Promise((resolve) => setTimeout(resolve, 10));
}

if (warnings.length > 0) throw new Error(warnings.join("\n"));
console.log(JSON.stringify({ state: agent.state, outcome: outcome.outcome, result: outcome.result, counts, broken }));
