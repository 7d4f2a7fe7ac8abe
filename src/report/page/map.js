/* SPDX-License-Identifier: Apache-2.0
 *
 * The map of a moment: the allocator's segments one after the other in lines, as text is, those of one pool and stream
 * together, with the blocks that are live in them. Where a source tells no segments but addresses, the stretches that
 * blocks ever held take their place.
 */
"use strict";

const LINE = 20, LINE_GAP = 4, TITLE = 22, MAX_LINES = 26, GAP = 3;
const map = { hits: [], order: [] };

/* {start, bytes, row, pool} of the moment. */
function placesAt(moment) {
  if (held.list.length > 0) {
    return segmentsAt(moment).map(([start, bytes, , , , row, pool]) => ({ start, bytes, row, pool }));
  }
  return (B.pieces || []).map((piece, k) => {
    const end = k + 1 < B.pieces.length ? B.pieces[k + 1].y : B.top;
    return { start: Number(piece.address), bytes: end - piece.y, row: -1, pool: -1 };
  });
}

/* Places by group, each with its live blocks by address: {name, places}. */
function groupsAt(moment) {
  const places = placesAt(moment).sort((a, b) => a.start - b.start), groups = new Map();
  const live = [];
  for (let i = 0; i < blocks.n; i++) { if (isLiveAt(i, moment)) { live.push({ i, address: Number(addressText(i)) }); } }
  live.sort((a, b) => a.address - b.address);
  let next = 0;
  for (const place of places) {
    while (next < live.length && live[next].address < place.start) { next++; }
    place.blocks = [];
    while (next < live.length && live[next].address < place.start + place.bytes) { place.blocks.push(live[next++]); }
    const key = place.pool + " " + place.row;
    if (!groups.has(key)) { groups.set(key, { pool: place.pool, row: place.row, places: [] }); }
    groups.get(key).places.push(place);
  }
  return [...groups.values()].sort((a, b) => b.pool - a.pool || a.row - b.row);
}

function poolText(group) { return group.pool < 0 ? "" : group.pool > 0 ? "large blocks" : "blocks of at most 1 MiB"; }
function streamText(group) { return group.row < 0 ? "no block so far" : D.rows.length > 1 ? D.rows[group.row] || "row " + group.row : "stream 0"; }

function holesOf(place) {
  const holes = [];
  let at = place.start;
  for (const { i, address } of place.blocks) {
    if (address > at) { holes.push(address - at); }
    at = Math.max(at, address + B.size[i]);
  }
  if (at < place.start + place.bytes) { holes.push(place.start + place.bytes - at); }
  return holes;
}

function fillPools() {
  const rows = groupsAt(moments.now).map((group) => {
    const row = { pool: poolText(group), stream: streamText(group), n: group.places.length, bytes: 0, live: 0, free: 0, hole: 0, empty: 0 };
    for (const place of group.places) {
      const holes = holesOf(place), free = holes.reduce((sum, hole) => sum + hole, 0);
      row.bytes += place.bytes;
      row.free += free;
      row.live += place.bytes - free;
      row.hole = holes.reduce((most, hole) => Math.max(most, hole), row.hole);
      row.empty += place.blocks.length === 0 ? place.bytes : 0;
    }
    return row;
  });
  byId("pools").hidden = held.list.length === 0 || rows.length === 0;
  const columns = [textColumn("pool", (row) => row.pool), textColumn("stream", (row) => row.stream),
    countColumn("segments", (row) => row.n), bytesColumn("reserved", (row) => row.bytes), bytesColumn(isExact() ? "live" : "live, at least", (row) => row.live),
    bytesColumn(isExact() ? "free" : "free, at most", (row) => row.free), bytesColumn("largest hole", (row) => row.hole),
    bytesColumn("in empty segments", (row) => row.empty)];
  fillTable(byId("pools"), rows.some((row) => row.pool !== "") ? columns : columns.slice(1), rows);
}

/* ---- drawing ---- */

/* A stretch of a place, from and to in pixels of the endless line, as rectangles of its lines. */
function piecesOf(from, to, top, width) {
  const pieces = [];
  for (let line = Math.floor(from / width); line * width < to; line++) {
    const left = Math.max(from - line * width, 0), right = Math.min(to - line * width, width);
    if (right > left) { pieces.push([left, top + line * (LINE + LINE_GAP), right - left, LINE]); }
  }
  return pieces;
}

/* Where each place lies: {place, from, scale, top}; and how high all are. */
function layMap(groups, width) {
  const bytes = groups.reduce((sum, group) => group.places.reduce((all, place) => all + place.bytes, sum), 0);
  const scale = MAX_LINES * width / Math.max(bytes, 1), laid = [], titles = [];
  let top = 0;
  for (const group of groups) {
    const name = [poolText(group), held.list.length > 0 ? streamText(group) : ""].filter((part) => part !== "").join(", ");
    if (name !== "") {
      titles.push([name, top]);
      top += TITLE;
    }
    let at = 0;
    for (const place of group.places) {
      const length = Math.max(place.bytes * scale, 4);
      laid.push({ place, from: at, scale: length / place.bytes, top });
      at += length + GAP;
    }
    top += Math.ceil(at / width) * (LINE + LINE_GAP) + 6;
  }
  return { laid, titles, height: top };
}

function drawPlace(ctx, { place, from, scale, top }, width, hatch) {
  const put = (start, end) => piecesOf(from + (start - place.start) * scale, from + (end - place.start) * scale, top, width);
  ctx.globalAlpha = 1;
  for (const piece of put(place.start, place.start + place.bytes)) {
    ctx.fillStyle = colour("field");
    ctx.fillRect(...piece);
    ctx.strokeStyle = colour("muted");
    ctx.lineWidth = 1;
    ctx.strokeRect(piece[0] + 0.5, piece[1] + 0.5, Math.max(piece[2] - 1, 0), piece[3] - 1);
  }
  for (const { i, address } of place.blocks) {
    for (const [left, y, wide, high] of put(address, Math.min(address + B.size[i], place.start + place.bytes))) {
      const shown = [left, y + 1, wide > 2 ? wide - 0.5 : Math.max(wide, 0.5), high - 2];
      ctx.globalAlpha = isFound(i) ? 1 : 0.15;
      ctx.fillStyle = roleColour(D.roles[B.role[i]]);
      ctx.fillRect(...shown);
      if ((B.flags[i] & 1) !== 0) {
        ctx.fillStyle = hatch;
        ctx.fillRect(...shown);
      }
      map.hits.push([left, y, Math.max(wide, 1), high, i]);
    }
    map.order.push(i);
  }
  ctx.globalAlpha = 1;
}

function drawMap() {
  const canvas = byId("map"), width = canvas.parentElement.clientWidth;
  if (moments.now < 0 || width === 0 || !B.pieces) { return; }
  const { laid, titles, height } = layMap(groupsAt(moments.now), width), ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(Math.max(height, 1) * ratio);
  canvas.style.height = Math.max(height, 1) + "px";
  const ctx = canvas.getContext("2d");
  ctx.scale(ratio, ratio);
  map.hits = [];
  map.order = [];
  const hatch = hatching(ctx);
  ctx.font = "600 13px system-ui, sans-serif";
  ctx.textBaseline = "middle";
  ctx.fillStyle = colour("ink");
  for (const [name, top] of titles) { ctx.fillText(name, 0, top + TITLE / 2); }
  for (const one of laid) { drawPlace(ctx, one, width, hatch); }
  ctx.lineWidth = 2.5;
  ctx.strokeStyle = colour("ink");
  for (const [left, top, wide, high, i] of map.hits) { if (i === chosen) { ctx.strokeRect(left, top, Math.max(wide, 3), high); } }
  canvas.setAttribute("aria-label", "segments and live blocks at " + momentText(moments.now) + ", " + countText(laid.length) + " stretches");
}

/* ---- pointer and keys ---- */

function mapBlockAt(px, py) {
  const hit = map.hits.find(([left, top, wide, high]) => px >= left && px <= left + wide && py >= top && py <= top + high);
  return hit ? hit[4] : -1;
}

function stepInMap(direction) {
  const order = map.order.filter(isFound), at = order.indexOf(chosen);
  if (order.length > 0) { choose(order[at < 0 ? 0 : (at + direction + order.length) % order.length]); }
}

function startMap() {
  if (!B.pieces) { hideSection("map-box"); return; }
  const canvas = byId("map");
  byId("map-how").textContent = (held.list.length > 0 ? "Each outlined stretch is a segment that the allocator holds" :
    "Stretches of addresses that blocks ever held") + "; blocks in colour, holes empty, by address. Click a block for its story; " +
    "the left and right arrows go from block to block, up and down from moment to moment." +
    (D.held_left_out > 0 ? " " + countText(D.held_left_out) + " small segments are left out." : "");
  canvas.addEventListener("pointermove", (event) => {
    const i = mapBlockAt(event.offsetX, event.offsetY);
    putTip(byId("map-tip"), i < 0 ? null : tipText(i), event.offsetX, event.offsetY);
  });
  canvas.addEventListener("pointerleave", () => { byId("map-tip").hidden = true; });
  canvas.addEventListener("click", (event) => {
    const i = mapBlockAt(event.offsetX, event.offsetY);
    if (i >= 0) { choose(i); }
  });
  canvas.addEventListener("keydown", (event) => {
    const last = moments.at.length - 1;
    const keys = { ArrowLeft: () => stepInMap(-1), ArrowRight: () => stepInMap(1),
      ArrowUp: () => showMoment(Math.max(moments.now - 1, 0)), ArrowDown: () => showMoment(Math.min(moments.now + 1, last)) };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) { return; }
    event.preventDefault();
    keys[event.key]();
  });
  new ResizeObserver(drawMap).observe(canvas.parentElement);
}
