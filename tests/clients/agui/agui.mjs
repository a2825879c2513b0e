import { HttpAgent } from "@ag-ui/client";
const [url] = process.argv.slice(2);
if (!url || !HttpAgent) throw new Error("usage: agui.mjs URL");
