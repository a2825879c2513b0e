// Follows a board with the AG-UI client until it is done, and prints the document derived from the stream as JSON.
//
//   node agui.mjs URL [--break N]
//
// --break N: destroys the connection after every N events; the client continues with its document.
import { HttpAgent } from "@ag-ui/client";
import { EventSchema } from "@ag-ui/core/schemas";

const [url, flag, every] = process.argv.slice(2);
if (!url) throw new Error("usage: agui.mjs URL [--break N]");
const breakAfter = flag === "--break" ? Number(every) : Infinity;

// The client only warns of a patch that does not apply, and continues with a wrong document.
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
    // Errors by which the client reports the end of the connection.
    if (abortController.signal.aborted) return;
    EventSchema.parse(event);
    seen += 1;
    counts[event.type] = (counts[event.type] ?? 0) + 1;
    if (event.type === "CUSTOM") counts[event.name] = (counts[event.name] ?? 0) + 1;
    if (event.type === "RUN_FINISHED") {
      hasEnded = true;
      // An idle board continues with the next signal.
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
  // The client does not report the end of every destroyed connection.
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
