// Reads diagrams with the parsers of Mermaid and of Graphviz, and prints their nodes and edges with labels as JSON. Each
// argument is a file of Mermaid or of DOT.
import { readFileSync } from "node:fs";
import { JSDOM } from "jsdom";

const { window } = new JSDOM("");
Object.assign(globalThis, { window, document: window.document });

const { default: mermaid } = await import("mermaid");
const { instance } = await import("@viz-js/viz");
const viz = await instance();

// Numbers of characters, as Mermaid writes them back once it draws.
const unescaped = (text) =>
  text.replaceAll(/ﬂ°°(\d+)¶ß/g, (_, number) => String.fromCodePoint(Number(number))).replaceAll(/<br\/?>/g, "\n");

async function readMermaid(text) {
  // Rejects files without a diagram, and loads the grammars.
  await mermaid.parse(text);
  const { db } = await mermaid.mermaidAPI.getDiagramFromText(text);
  const data = db.getData();
  return {
    nodes: data.nodes.map((node) => unescaped(node.label)),
    edges: data.edges.map((edge) => [edge.start, edge.end, unescaped(edge.label ?? "")]),
    marked: data.nodes.filter((node) => node.cssClasses.includes("contested")).length,
  };
}

// Reads a label as Graphviz does: `\\n` is a new line, and entities are characters.
const drawnLabel = (label) =>
  label.replaceAll(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c)).replaceAll("&amp;", "&");

function readDot(text) {
  const drawn = viz.renderJSON(text);
  return {
    nodes: drawn.objects.map((node) => drawnLabel(node.label)),
    edges: (drawn.edges ?? []).map((edge) => [
      drawn.objects[edge.tail].name,
      drawn.objects[edge.head].name,
      drawnLabel(edge.label ?? ""),
    ]),
    marked: drawn.objects.filter((node) => node.penwidth === "3").length,
  };
}

const read = [];
for (const path of process.argv.slice(2)) {
  const text = readFileSync(path, "utf8");
  read.push(path.endsWith(".dot") ? readDot(text) : await readMermaid(text));
}
console.log(JSON.stringify(read));
