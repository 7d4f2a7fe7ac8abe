/* SPDX-License-Identifier: Apache-2.0
 *
 * What the page's other scripts share: the data, numbers for people, elements, colours. All texts of a recording become
 * text nodes; none becomes markup.
 */
"use strict";

const D = JSON.parse(document.getElementById("ebb-data").textContent);
const R = D.report;
const HELD_BYTES = R.is_moment ? R.end_live_bytes : R.peak_bytes, HELD_WHEN = R.is_moment ? "when it was taken" : "at the peak";
const OF_HELD = R.is_moment ? "of what was live" : "of the peak";
const byTime = D.axis === "time";
/* In the order in which they are stacked: what stays first. */
const ROLE_COLOURS = {
  parameter: "#2f7fc4", buffer: "#56b4e9", optimizer_state: "#c26aa0", gradient: "#e69f00", activation: "#1f9e77",
  input: "#d95f30", temp: "#8c8c8c", workspace: "#8066cc", other: "#a89a1e", unknown: "#6f8296",
};

/* ---- numbers for people ---- */

function bytesText(bytes) {
  if (bytes === null || bytes < 0) { return "unknown"; }
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let i = 0, x = bytes;
  while (x >= 1024 && i + 1 < units.length) { x /= 1024; i++; }
  return i === 0 ? x + " B" : (x < 100 ? x.toFixed(2) : x < 1000 ? x.toFixed(1) : x.toFixed(0)) + " " + units[i];
}

function timeText(ns) {
  if (ns === null || ns < 0) { return "unknown"; }
  const units = [["s", 1e9], ["ms", 1e6], ["\u00b5s", 1e3]];
  for (const [unit, size] of units) {
    if (ns >= size) { return parseFloat((ns / size).toPrecision(4)) + " " + unit; }
  }
  return parseFloat(ns.toPrecision(3)) + " ns";
}

function countText(n) { return n === null ? "unknown" : n.toLocaleString("en"); }
function secondsText(s) { return s === null ? "unknown" : timeText(s * 1e9); }
function xText(x) { return byTime ? timeText(x) : "event " + countText(Math.round(x)); }
function percentText(part, whole) { return whole > 0 ? (100 * part / whole).toFixed(1) + " %" : ""; }
function text(number) { return number >= 0 && number < D.texts.length ? D.texts[number] : ""; }

/* ---- elements ---- */

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "class") { made.className = value; }
    else if (key.startsWith("on")) { made.addEventListener(key.slice(2), value); }
    else { made.setAttribute(key, value); }
  }
  for (const child of children) { made.append(child); }
  return made;
}

function byId(id) { return document.getElementById(id); }

const LONG_PART = 20, LONG_WORD = 36; // characters: a telephone's cell and line have room for them

/* A name that breaks between its parts rather than elsewhere: after dots, slashes and underscores, and before the capitals
 * of a part that is long. */
function breakable(name) {
  const span = element("span", {});
  for (const part of name.split(/(?<=[.\/_=\s]|\w\(|::)/)) {
    for (const piece of part.length > LONG_PART ? part.split(/(?<=[a-z])(?=[A-Z])/) : [part]) {
      span.append(piece, document.createElement("wbr"));
    }
  }
  return span;
}

/* Sentences keep their words whole, but for those that no line may have room for. */
function breakLongWords(box) {
  const walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT), nodes = [];
  while (walker.nextNode()) { nodes.push(walker.currentNode); }
  for (const node of nodes) {
    const words = node.data.split(/(\s+)/);
    if (words.some((word) => word.length > LONG_WORD)) {
      node.replaceWith(...words.map((word) => word.length > LONG_WORD ? breakable(word) : word));
    }
  }
}

/* A number that programs can read too: its value is that of --json. */
function dataElement(key, value, shown) {
  return element("data", { value: value === null ? "null" : String(value), "data-key": key }, shown);
}

/* A frame is five numbers: its caller, function, file, line, and the frame that is its call site. */
const FRAME = 5;

function frameText(at) {
  const file = text(D.frames[at * FRAME + 2]), line = D.frames[at * FRAME + 3];
  return (text(D.frames[at * FRAME + 1]) || "?") + (file ? " (" + file + (line ? ":" + line : "") + ")" : "");
}

/* The words for a stack's call site, with the last two parts of its file's path; "" if there is no call site. */
function siteText(stack) {
  const at = stack >= 0 ? D.frames[stack * FRAME + 4] : -1;
  return at >= 0 ? frameText(at).replace(/\((?:[^()]*[\/\\])?([^()\/\\]+[\/\\][^()\/\\]+)\)$/, "($1)") : "";
}

function frameLines(stack) {
  const lines = [];
  for (let at = stack; at >= 0 && at * FRAME < D.frames.length; at = D.frames[at * FRAME]) { lines.push(frameText(at)); }
  return lines;
}

function framesElement(stack) {
  const list = element("ol", { class: "frames" });
  for (const line of frameLines(stack)) { list.append(element("li", {}, line)); }
  return list;
}

/* What stands out among intervals: the study's outliers, or else the largest blocks by their longest interval and bytes. */
function standingOut() {
  const outliers = D.intervals.outliers.map((o) => ({ ns: o[0], bytes: o[1], number: o[2], name: o[3],
    between: D.kinds[o[4]] + " and " + D.kinds[o[5]] }));
  if (outliers.length > 0 || !D.blocks.number) { return outliers; }
  const B = D.blocks;
  const order = B.number.map((_, i) => i).filter((i) => B.idle[i] > 0);
  order.sort((a, b) => B.idle[b] * B.size[b] - B.idle[a] * B.size[a]);
  return order.slice(0, 20).map((i) => ({ ns: B.idle[i], bytes: B.size[i], number: B.number[i], name: B.name[i], between: "" }));
}

/* Roles in words: the data have optimizer_state. */
function roleText(role) { return role === "unknown" && !(R.tells.roles || R.roles_inferred) ? "live" : role.replace("_", " "); }

function hideSection(id) { byId(id).hidden = true; }

/* ---- colours ---- */

function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim(); }
function roleColour(role) { return ROLE_COLOURS[role] || ROLE_COLOURS.unknown; }

/* Steps of a byte axis that are powers of two. */
function byteStep(most) {
  let step = 1;
  while (most / step > 8) { step *= 2; }
  return step;
}
