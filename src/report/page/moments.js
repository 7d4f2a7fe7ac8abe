/* SPDX-License-Identifier: Apache-2.0
 *
 * Moments: every time at which a listed block comes or goes; in a long recording, of which not all blocks are listed, the
 * moments of the curve, where the bytes of each role are exact. The blocks that are live at one, what happened around
 * it, and what changed from one to another.
 */
"use strict";

const moments = { at: [], now: -1, peak: 0 };
const held = { list: D.held.map(([address, ...more]) => [Number(address), ...more]) };
const HISTORY_AROUND = 7;
let historyEvents = null;

function isExact() { return !(B.rest > 0); }
function isFromBefore(i) { return (B.flags[i] & 1) !== 0; } /* the recording tells of it one event after the other */

function listMoments() {
  if (R.is_moment) { moments.at = Float64Array.of(D.end); return; }
  const all = new Set(isExact() ? [0, D.end] : D.curve.x);
  if (isExact()) {
    for (let i = 0; i < blocks.n; i++) { all.add(isFromBefore(i) ? 0 : blocks.born[i]).add(blocks.died[i]); }
    for (const [, , born, died] of held.list) { all.add(born).add(died); }
    all.add(D.curve.peak_x);
  }
  moments.at = Float64Array.from(all).sort();
  moments.peak = momentNear(D.curve.peak_x);
}

/* The last moment that is not after x. */
function momentNear(x) {
  let low = 0, high = moments.at.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (moments.at[middle] <= x) { low = middle; } else { high = middle - 1; }
  }
  return low;
}

/* Whether a block lives after all that happened at that time. More than one event may have the peak's time; there, the
 * blocks that are marked as the peak's count. */
function isLiveAt(i, moment) {
  if (moment === moments.peak) { return (B.flags[i] & 2) !== 0; }
  const x = moments.at[moment];
  return (isFromBefore(i) || blocks.born[i] <= x) && (blocks.died[i] > x || (B.flags[i] & 4) !== 0);
}

/* Bytes by role at a moment of the curve that no listed block has. */
function unlistedAt(moment) {
  const k = D.curve.x.indexOf(moments.at[moment]), left = D.roles.map((role) => k >= 0 && D.curve.live[role] ? D.curve.live[role][k] : 0);
  for (let i = 0; i < blocks.n; i++) { if (isLiveAt(i, moment)) { left[B.role[i]] -= B.size[i]; } }
  return left.map((bytes) => Math.max(bytes, 0));
}

function liveBytes(moment) {
  let bytes = 0;
  for (let i = 0; i < blocks.n; i++) { if (isLiveAt(i, moment)) { bytes += B.size[i]; } }
  return isExact() ? bytes : bytes + unlistedAt(moment).reduce((sum, more) => sum + more, 0);
}

function segmentsAt(moment) {
  const x = moments.at[moment];
  return held.list.filter(([, , born, died, isKept]) => born <= x && (died > x || isKept === 1));
}

function momentText(moment) {
  const name = moment === moments.peak ? " (the peak)" : "";
  return xText(moments.at[moment]) + name + ": " + bytesText(liveBytes(moment)) + " live";
}

function showMoment(moment) {
  moments.now = moment;
  byId("moment-at").value = moment;
  const reserved = segmentsAt(moment).reduce((sum, segment) => sum + segment[1], 0);
  const words = momentText(moment) + (held.list.length > 0 ? " of " + bytesText(reserved) + " reserved" : "");
  byId("moment-words").textContent = words;
  byId("moment-at").setAttribute("aria-valuetext", words);
  if (charts.curve) { charts.curve.draw(); }
  charts.gantt.draw();
  drawMap();
  fillPools();
  fillHistory();
  if (byId("find-when").value === "moment") { find(); }
}

/* ---- what happened around it ---- */

function listHistory() {
  const events = [];
  for (let i = 0; i < blocks.n; i++) {
    if ((B.flags[i] & 1) === 0) { events.push({ x: blocks.born[i], order: 2 * i, what: "alloc", block: i, bytes: B.size[i] }); }
    if ((B.flags[i] & 4) === 0) { events.push({ x: blocks.died[i], order: 2 * i + 1, what: "free", block: i, bytes: B.size[i] }); }
  }
  for (const [address, bytes, born, died, isKept] of held.list) {
    const at = "0x" + address.toString(16);
    if (born > 0) { events.push({ x: born, order: -1, what: "segment taken", block: -1, bytes, at }); }
    if (isKept !== 1) { events.push({ x: died, order: -1, what: "segment given back", block: -1, bytes, at }); }
  }
  for (const refused of R.refused) {
    const x = byTime ? Math.round(refused.time_s * 1e9) : refused.event;
    events.push({ x, order: Infinity, what: "out of memory", block: -1, bytes: refused.bytes, at: refused.stack[0] || "" });
  }
  return events.sort((a, b) => a.x - b.x || a.order - b.order);
}

function fillHistory() {
  historyEvents = historyEvents || listHistory();
  const x = moments.at[moments.now];
  let first = historyEvents.findIndex((event) => event.x >= x);
  if (first < 0) { first = historyEvents.length; }
  const rows = historyEvents.slice(Math.max(0, first - HISTORY_AROUND), first + MAX_ROWS + 1 - HISTORY_AROUND);
  const columns = [textColumn("event", (event) => event.what),
    { title: byTime ? "at" : "number", of: (event) => event.x, number: true, shown: (event) => xText(event.x) },
    bytesColumn("bytes", (event) => event.bytes),
    textColumn("block", (event) => event.block >= 0 ? blockName(B.number[event.block], B.name[event.block]) : event.at)];
  if (R.tells.stacks) { columns.push(textColumn("call site", (event) => event.block >= 0 ? siteText(B.stack[event.block]) : " ")); }
  byId("history").hidden = R.is_moment || rows.length === 0;
  fillTable(byId("history"), columns, rows, null, { isNow: (event) => event.x === x, act: (event) => {
    showMoment(momentNear(event.x));
    if (event.block >= 0) { choose(event.block); }
  } });
}

/* ---- two moments ---- */

function groupOf(i, by) {
  if (by === "role") { return roleText(D.roles[B.role[i]]); }
  return (by === "site" ? siteText(B.stack[i]) : text(B.name[i]).replace(/(^|\.)\d+(?=\.|$)/g, "$1*")) || "(no name)";
}

function changesBetween(a, b, by) {
  const rows = new Map();
  const rowOf = (name) => {
    if (!rows.has(name)) { rows.set(name, { name, first: 0, came: 0, went: 0, second: 0 }); }
    return rows.get(name);
  };
  let passed = 0, passedBytes = 0;
  for (let i = 0; i < blocks.n; i++) {
    const inA = isLiveAt(i, a), inB = isLiveAt(i, b);
    if (!inA && !inB) {
      const isBetween = blocks.born[i] > moments.at[a] && blocks.died[i] <= moments.at[b];
      passed += isBetween ? 1 : 0;
      passedBytes += isBetween ? B.size[i] : 0;
      continue;
    }
    const row = rowOf(groupOf(i, by));
    row.first += inA ? B.size[i] : 0;
    row.second += inB ? B.size[i] : 0;
    row.came += inB && !inA ? B.size[i] : 0;
    row.went += inA && !inB ? B.size[i] : 0;
  }
  if (!isExact()) {
    const before = unlistedAt(a), after = unlistedAt(b);
    D.roles.forEach((role, r) => {
      if (before[r] + after[r] === 0) { return; }
      const row = rowOf("smaller blocks" + (R.tells.roles || R.roles_inferred ? ", " + roleText(role) : ""));
      row.first += before[r];
      row.second += after[r];
      row.came += Math.max(after[r] - before[r], 0);
      row.went += Math.max(before[r] - after[r], 0);
    });
  }
  return { rows: [...rows.values()], passed, passedBytes };
}

function signedText(bytes) { return (bytes > 0 ? "+" : bytes < 0 ? "\u2212" : "") + bytesText(Math.abs(bytes)); }

function showDifference() {
  const a = Number(byId("first-at").value), b = Number(byId("second-at").value);
  byId("first-words").textContent = momentText(a);
  byId("second-words").textContent = momentText(b);
  const { rows, passed, passedBytes } = changesBetween(a, b, byId("difference-by").value);
  rows.sort((one, other) => Math.abs(other.second - other.first) - Math.abs(one.second - one.first));
  const net = rows.reduce((sum, row) => sum + row.second - row.first, 0);
  byId("difference-words").textContent = signedText(net) + " from the first moment to the second" +
    (b >= a && passed > 0 ? "; " + countText(passed) + (isExact() ? "" : " of the listed") + " blocks of " + bytesText(passedBytes) +
      " in all came and went between them" : "") + ".";
  fillTable(byId("differences"), [textColumn("what", (row) => row.name), bytesColumn("at the first", (row) => row.first),
    bytesColumn("allocated since", (row) => row.came), bytesColumn("freed since", (row) => row.went),
    bytesColumn("at the second", (row) => row.second),
    { title: "difference", number: true, of: (row) => row.second - row.first, shown: (row) => signedText(row.second - row.first) }], rows);
}

/* ---- beginning ---- */

/* Each segment's end and birth in order; what goes at a time goes first. */
function mostReserved() {
  const changes = [];
  for (const [, bytes, born, died, isKept] of held.list) {
    changes.push([born, bytes]);
    if (isKept !== 1) { changes.push([died, -bytes]); }
  }
  changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let bytes = 0, most = 0, at = -1;
  for (const [x, change] of changes) {
    bytes += change;
    if (bytes > most) { most = bytes; at = x; }
  }
  return at < 0 ? -1 : momentNear(at);
}

const SPECIAL_MOMENTS = {
  peak: () => moments.peak,
  reserved: mostReserved,
  refused: () => {
    const refused = R.refused[R.refused.length - 1];
    return refused ? momentNear(byTime ? Math.round(refused.time_s * 1e9) : refused.event) : -1;
  },
  end: () => moments.at.length - 1,
};

function startMoments() {
  listMoments();
  for (const id of ["moment-at", "first-at", "second-at"]) { byId(id).max = moments.at.length - 1; }
  byId("moment-at").addEventListener("input", () => showMoment(Number(byId("moment-at").value)));
  for (const button of document.querySelectorAll("[data-moment]")) {
    const moment = SPECIAL_MOMENTS[button.dataset.moment]();
    button.hidden = moment < 0;
    button.addEventListener("click", () => showMoment(moment));
  }
  byId("rest-words").hidden = isExact();
  byId("rest-words").textContent = "The " + countText(blocks.n) + " blocks with the greatest area (bytes times life) are listed one by one, " +
    "here and in what is found. " + countText(B.rest) + " smaller ones count in what is live, but are not drawn, so some of the bytes that are shown as free may be theirs.";
  const by = byId("difference-by");
  if (R.tells.stacks) { by.append(element("option", { value: "site" }, "call site")); }
  if (B.name.some((name) => name >= 0)) { by.append(element("option", { value: "name" }, "name, equal layers as one")); }
  if (!R.tells.roles && !R.roles_inferred && by.options.length > 1) { by.selectedIndex = 1; } /* one role says nothing */
  byId("second-at").value = moments.peak;
  for (const id of ["first-at", "second-at", "difference-by"]) { byId(id).addEventListener("input", showDifference); }
}
