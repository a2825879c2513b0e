// Reads drawings with the parsers of Mermaid and of Graphviz, and prints what these understood, as JSON: for each argument, a file
// of Mermaid or of DOT, its nodes with their labels and its edges with theirs.
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
  // Refuses what is no diagram, and gets the grammars ready.
  await mermaid.parse(text);
  const { db } = await mermaid.mermaidAPI.getDiagramFromText(text);
  const data = db.getData();
  return {
    nodes: data.nodes.map((node) => unescaped(node.label)),
    edges: data.edges.map((edge) => [edge.start, edge.end, unescaped(edge.label ?? "")]),
    marked: data.nodes.filter((node) => node.cssClasses.includes("contested")).length,
  };
}

// What Graphviz makes of a label: `\\n` is a new line, and entities are characters.
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
