/* SPDX-License-Identifier: Apache-2.0
 *
 * The picture of blocks: rectangles in a chart whose axes and size are Chart.js's. A view (x0, x1, y0, y1) says what is
 * shown; keys, buttons, wheel and pointer change it. Blocks too many to have a rectangle come as a grid of shades.
 */
"use strict";

const B = D.blocks;
const blocks = { n: 0 };
const view = { x0: 0, x1: Math.max(D.end, 1), y0: 0, y1: B.top || 1 };
const MIN_SPAN = 4;
let chosen = -1, gridImage = null;
window.blocksView = view;

function blockName(number, name) { return text(name) || "block " + number; }

/* Births are differences, and accesses lie in one list: made absolute here. */
function unpackBlocks() {
  if (!B.number) { return; }
  blocks.n = B.number.length;
  blocks.born = new Float64Array(blocks.n);
  blocks.died = new Float64Array(blocks.n);
  blocks.firstAccess = new Uint32Array(blocks.n);
  let born = 0, access = 0;
  for (let i = 0; i < blocks.n; i++) {
    born += B.born[i];
    blocks.born[i] = born;
    blocks.died[i] = born + B.life[i];
    blocks.firstAccess[i] = access;
    access += B.n_accesses[i];
  }
}

/* ---- drawing ---- */

function makeGridImage() {
  const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  const image = document.createElement("canvas"), ctx = image.getContext("2d");
  image.width = B.grid[0].length;
  image.height = B.grid.length;
  B.grid.forEach((row, r) => {
    for (let c = 0; c < row.length; c++) {
      const code = letters.indexOf(row[c]);
      if (code < 0) { continue; }
      ctx.globalAlpha = 0.25 + 0.2 * (code % 4);
      ctx.fillStyle = roleColour(D.roles[code >> 2]);
      ctx.fillRect(c, B.grid.length - 1 - r, 1, 1);
    }
  });
  return image;
}

/* Lines over what was there before the recording: its alloc was not seen. */
function hatching(ctx) {
  const tile = document.createElement("canvas"), on = tile.getContext("2d");
  tile.width = tile.height = 8;
  on.strokeStyle = colour("paper");
  on.globalAlpha = 0.45;
  on.lineWidth = 1;
  for (const shift of [-8, 0, 8]) {
    on.moveTo(shift, 8);
    on.lineTo(shift + 8, 0);
  }
  on.stroke();
  return ctx.createPattern(tile, "repeat");
}

/* y of an address, and where its piece ends; null: no block ever held it. */
function placeOf(address) {
  let found = null;
  (B.pieces || []).forEach((piece, k) => {
    const start = Number(piece.address);
    if (start <= address) { found = { y: piece.y + address - start, end: k + 1 < B.pieces.length ? B.pieces[k + 1].y : B.top }; }
  });
  return found;
}

/* The allocator's segments as frames, as far as they lie where blocks ever did. */
function drawSegments(ctx, x, y) {
  ctx.fillStyle = colour("field");
  for (const [start, bytes, born, died] of held.list) {
    const from = placeOf(start) || (B.pieces && Number(B.pieces[0].address) < start + bytes ? { y: 0, end: B.top } : null);
    if (!from) { continue; }
    const top = y.getPixelForValue(Math.min(from.y + bytes, from.end)), bottom = y.getPixelForValue(from.y);
    const left = x.getPixelForValue(born), right = x.getPixelForValue(died);
    ctx.fillRect(left, top, Math.max(right - left, 1), Math.max(bottom - top, 1));
  }
}

function drawGrid(ctx, x, y) {
  if (!B.grid) { return; }
  gridImage = gridImage || makeGridImage();
  ctx.imageSmoothingEnabled = false;
  const left = x.getPixelForValue(0), right = x.getPixelForValue(D.end);
  const top = y.getPixelForValue(B.top), bottom = y.getPixelForValue(0);
  ctx.drawImage(gridImage, left, top, right - left, bottom - top);
}

function rectangle(i, x, y) {
  const left = x.getPixelForValue(blocks.born[i]), right = x.getPixelForValue(blocks.died[i]);
  const bottom = y.getPixelForValue(B.y[i]), top = y.getPixelForValue(B.y[i] + B.size[i]);
  return [left, top, Math.max(right - left, 1), Math.max(bottom - top, 1)];
}

function drawAccesses(ctx, i, x, y) {
  const [, top, , height] = rectangle(i, x, y);
  for (let a = 0; a < B.n_accesses[i]; a++) {
    const at = x.getPixelForValue(blocks.born[i] + B.access_time[blocks.firstAccess[i] + a]);
    ctx.fillStyle = B.access_kind[i][a] === "w" ? colour("mark") : colour("ink");
    ctx.fillRect(at - 0.5, top, 1.5, height);
  }
}

const rectangles = {
  id: "rectangles",
  beforeDatasetsDraw(chart) {
    const { ctx, chartArea: area, scales: { x, y } } = chart;
    ctx.save();
    ctx.beginPath();
    ctx.rect(area.left, area.top, area.right - area.left, area.bottom - area.top);
    ctx.clip();
    drawSegments(ctx, x, y);
    ctx.globalAlpha = finding.is ? 0.3 : 1;
    drawGrid(ctx, x, y);
    const hatch = hatching(ctx);
    for (let i = 0; i < blocks.n; i++) {
      if (blocks.died[i] < view.x0 || blocks.born[i] > view.x1 || B.y[i] + B.size[i] < view.y0 || B.y[i] > view.y1) { continue; }
      const [left, top, width, height] = rectangle(i, x, y);
      ctx.globalAlpha = isFound(i) ? 1 : 0.15;
      ctx.fillStyle = roleColour(D.roles[B.role[i]]);
      ctx.fillRect(left, top, width > 3 ? width - 0.5 : width, height > 3 ? height - 0.5 : height);
      if ((B.flags[i] & 1) !== 0 && height > 3) {
        ctx.fillStyle = hatch;
        ctx.fillRect(left, top, width, height);
      }
    }
    ctx.globalAlpha = 1;
    if (moments.now >= 0) {
      ctx.strokeStyle = colour("accent");
      ctx.lineWidth = 2;
      ctx.beginPath();
      ctx.moveTo(x.getPixelForValue(moments.at[moments.now]), area.top);
      ctx.lineTo(x.getPixelForValue(moments.at[moments.now]), area.bottom);
      ctx.stroke();
      ctx.lineWidth = 1;
    }
    ctx.strokeStyle = colour("mark");
    ctx.setLineDash([6, 4]);
    ctx.beginPath();
    ctx.moveTo(x.getPixelForValue(D.curve.peak_x), area.top);
    ctx.lineTo(x.getPixelForValue(D.curve.peak_x), area.bottom);
    ctx.stroke();
    if (chosen >= 0) {
      drawAccesses(ctx, chosen, x, y);
      ctx.setLineDash([]);
      ctx.lineWidth = 3;
      ctx.strokeStyle = colour("ink");
      ctx.strokeRect(...rectangle(chosen, x, y));
    }
    ctx.restore();
  },
};

function drawBlocks() {
  if (R.blocks === 0) { return; }
  makeChart("gantt", "blocks, time by address; " + countText(blocks.n) + " of " + countText(R.blocks) + " drawn one by one", {
    type: "scatter", data: { datasets: [{ data: [] }] }, plugins: [rectangles],
    options: {
      events: [],
      plugins: { legend: { display: false }, tooltip: { enabled: false } },
      scales: {
        x: xAxis({ min: view.x0, max: view.x1 }),
        y: { type: "linear", min: view.y0, max: view.y1, grid: { color: colour("line") }, afterBuildTicks: byteTicks,
          ticks: { callback: (value) => bytesText(Math.round(value)) },
          title: { display: true, text: B.pieces ? "address, from the lowest" : "laid out by ebb; no addresses are told" } },
      },
    },
  });
  showRange();
}

function showRange() {
  byId("range").textContent = xText(view.x0) + " to " + xText(view.x1) + ", " + bytesText(Math.round(view.y0)) + " to " +
    bytesText(Math.round(view.y1));
  byId("range").dataset.view = [view.x0, view.x1, view.y0, view.y1].join(" ");
}

/* ---- changing the view ---- */

function setView(x0, x1, y0, y1) {
  const limit = (low, high, least, most, span) => {
    const width = Math.min(Math.max(high - low, span), most - least);
    const start = Math.min(Math.max(low, least), most - width);
    return [start, start + width];
  };
  [view.x0, view.x1] = limit(x0, x1, 0, Math.max(D.end, 1), Math.min(MIN_SPAN, D.end || 1));
  [view.y0, view.y1] = limit(y0, y1, 0, B.top, Math.min(MIN_SPAN, B.top));
  const scales = charts.gantt.options.scales;
  scales.x.min = view.x0;
  scales.x.max = view.x1;
  scales.y.min = view.y0;
  scales.y.max = view.y1;
  charts.gantt.update("none");
  if (charts.curve) { charts.curve.draw(); }
  showRange();
}

function zoom(factor, inY, atX, atY) {
  const x = atX === undefined ? (view.x0 + view.x1) / 2 : atX, y = atY === undefined ? (view.y0 + view.y1) / 2 : atY;
  if (inY) { setView(view.x0, view.x1, y - (y - view.y0) * factor, y + (view.y1 - y) * factor); }
  else { setView(x - (x - view.x0) * factor, x + (view.x1 - x) * factor, view.y0, view.y1); }
}

function move(dx, dy) {
  const width = view.x1 - view.x0, height = view.y1 - view.y0;
  setView(view.x0 + dx * width, view.x1 + dx * width, view.y0 + dy * height, view.y1 + dy * height);
}

function showAll() { setView(0, Math.max(D.end, 1), 0, B.top); }
function showPeak() { const span = D.end / 40; setView(D.curve.peak_x - span, D.curve.peak_x + span, 0, B.top); }

/* ---- a block's story ---- */

function addressText(i) {
  if (!B.pieces) { return null; }
  const piece = B.pieces.filter((p) => p.y <= B.y[i]).pop();
  return piece ? "0x" + (BigInt(piece.address) + BigInt(B.y[i] - piece.y)).toString(16) : null;
}

function lifeText(i) {
  const flags = B.flags[i];
  const begin = flags & 1 ? "from before the recording" : "from " + xText(blocks.born[i]);
  const end = flags & 4 ? "never freed" : "to " + xText(blocks.died[i]);
  return begin + ", " + end + (byTime ? ": " + timeText(B.life[i]) : "");
}

function accessesText(i) {
  const words = { r: "read", w: "write", c: "copy" };
  const list = [];
  for (let a = 0; a < B.n_accesses[i]; a++) {
    list.push(words[B.access_kind[i][a]] + " at " + xText(blocks.born[i] + B.access_time[blocks.firstAccess[i] + a]));
  }
  return list.join(", ");
}

function storyOf(i) {
  const facts = [["size", bytesText(B.size[i]) + " (" + countText(B.size[i]) + " bytes)"], ["role", roleWords(i)],
    ["life", lifeText(i)], ["at the peak", B.flags[i] & 2 ? "live" : "not live"], ["address", addressText(i)],
    ["stream", D.rows.length > 1 && R.tells.segments ? D.rows[B.row[i]] || null : null]];
  if (R.tells.accesses) {
    facts.push(["accesses", countText(B.reads[i]) + " reads, " + countText(B.writes[i]) + " writes"]);
    facts.push(["longest idle", B.idle[i] < 0 ? null : timeText(B.idle[i])]);
    facts.push(["when", accessesText(i) || null]);
  }
  const list = element("dl", {});
  for (const [title, value] of facts) {
    if (value !== null) { list.append(element("dt", {}, title), element("dd", {}, value)); }
  }
  const parts = [element("h3", {}, breakable(blockName(B.number[i], B.name[i]))), list];
  if (B.stack[i] >= 0) { parts.push(element("p", {}, "allocated by"), framesElement(B.stack[i])); }
  return parts;
}

function roleWords(i) {
  const role = roleText(D.roles[B.role[i]]);
  return R.roles_inferred && !R.tells.roles && role !== "unknown" ? role + ", as its call stack and life tell" : role;
}

function choose(i) {
  chosen = i;
  for (const story of document.querySelectorAll(".story")) {
    story.replaceChildren(...storyOf(i));
    story.dataset.block = B.number[i];
  }
  charts.gantt.draw();
  drawMap();
}

/* The block at a place of the canvas, the smallest where several lie within a pixel; -1: none. */
function blockAt(px, py) {
  const { x, y } = charts.gantt.scales, area = charts.gantt.chartArea;
  if (px < area.left || px > area.right || py < area.top || py > area.bottom) { return -1; }
  let found = -1;
  for (let i = 0; i < blocks.n; i++) {
    const [left, top, width, height] = rectangle(i, x, y);
    const isIn = px >= left - 0.5 && px <= left + width + 0.5 && py >= top - 0.5 && py <= top + height + 0.5;
    if (isIn && (found < 0 || B.size[i] * B.life[i] < B.size[found] * B.life[found])) { found = i; }
  }
  return found;
}

/* The next block in order of birth that lies in the view. */
function step(direction) {
  for (let n = 1; n <= blocks.n; n++) {
    const i = ((chosen < 0 ? (direction > 0 ? -1 : 0) : chosen) + direction * n + 2 * blocks.n) % blocks.n;
    if (isFound(i) && blocks.died[i] >= view.x0 && blocks.born[i] <= view.x1 && B.y[i] + B.size[i] >= view.y0 && B.y[i] <= view.y1) {
      choose(i);
      return;
    }
  }
}

/* ---- keys, pointer, buttons ---- */

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) { return; }
  const keys = {
    ArrowLeft: () => move(-0.2, 0), ArrowRight: () => move(0.2, 0), ArrowUp: () => move(0, 0.2), ArrowDown: () => move(0, -0.2),
    "+": () => zoom(0.6, false), "=": () => zoom(0.6, false), "-": () => zoom(1 / 0.6, false),
    "]": () => zoom(0.6, true), "[": () => zoom(1 / 0.6, true), "0": showAll, n: () => step(1), p: () => step(-1),
  };
  if (!keys[event.key]) { return; }
  event.preventDefault();
  keys[event.key]();
}

function onWheel(event) {
  if (document.activeElement !== byId("gantt") && !event.ctrlKey) { return; }
  event.preventDefault();
  const { x, y } = charts.gantt.scales;
  zoom(event.deltaY > 0 ? 1.25 : 0.8, event.shiftKey, x.getValueForPixel(event.offsetX), y.getValueForPixel(event.offsetY));
}

function listenToPointer(canvas) {
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.offsetX, y: event.offsetY, view: Object.assign({}, view), moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) { showTip(event.offsetX, event.offsetY); return; }
    const area = charts.gantt.chartArea, from = drag.view;
    const dx = (drag.x - event.offsetX) / (area.right - area.left) * (from.x1 - from.x0);
    const dy = (event.offsetY - drag.y) / (area.bottom - area.top) * (from.y1 - from.y0);
    drag.moved = drag.moved || Math.abs(drag.x - event.offsetX) + Math.abs(drag.y - event.offsetY) > 4;
    if (drag.moved) { setView(from.x0 + dx, from.x1 + dx, from.y0 + dy, from.y1 + dy); }
  });
  canvas.addEventListener("pointerup", (event) => {
    const wasClick = drag && !drag.moved;
    drag = null;
    canvas.focus({ preventScroll: true });
    const i = wasClick ? blockAt(event.offsetX, event.offsetY) : -1;
    if (i >= 0) { choose(i); }
  });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  canvas.addEventListener("pointerleave", () => { byId("tip").hidden = true; });
  canvas.addEventListener("dblclick", showAll);
}

function tipText(i) {
  return blockName(B.number[i], B.name[i]) + ", " + bytesText(B.size[i]) + ", " + roleText(D.roles[B.role[i]]) + ", " + lifeText(i);
}

/* Words beside the pointer, within the picture; null: none. */
function putTip(tip, words, px, py) {
  tip.hidden = words === null;
  if (words === null) { return; }
  tip.textContent = words;
  tip.style.left = Math.min(px + 14, Math.max(0, tip.parentElement.clientWidth - tip.offsetWidth)) + "px";
  tip.style.top = py + 16 + "px";
}

function showTip(px, py) {
  const i = blockAt(px, py);
  putTip(byId("tip"), i < 0 ? null : tipText(i), px, py);
}

function fillLegend() {
  const used = new Set(B.role), legend = byId("legend");
  D.roles.forEach((role, i) => {
    if (!used.has(i)) { return; }
    const swatch = element("span", { class: "swatch" });
    swatch.style.background = roleColour(role);
    legend.append(element("li", {}, swatch, roleText(role)));
  });
  let n = 0, bytes = 0;
  B.flags.forEach((flags, i) => {
    if ((flags & 1) !== 0) { n++; bytes += B.size[i]; }
  });
  if (n > 0) {
    legend.append(element("li", { id: "ghosts" }, element("span", { class: "swatch hatched" }), "from before the recording: " +
      countText(n) + (n === 1 ? " block, " : " blocks, ") + bytesText(bytes)));
  }
}

function startBlocks() {
  if (R.blocks === 0) { return; }
  unpackBlocks();
  fillLegend();
  const canvas = byId("gantt");
  canvas.addEventListener("keydown", onKey);
  canvas.addEventListener("wheel", onWheel, { passive: false });
  listenToPointer(canvas);
  const buttons = { "zoom-in": () => zoom(0.5, false), "zoom-out": () => zoom(2, false), "go-left": () => move(-0.25, 0),
    "go-right": () => move(0.25, 0), "go-up": () => move(0, 0.25), "go-down": () => move(0, -0.25), "zoom-peak": showPeak, "zoom-all": showAll };
  for (const [id, act] of Object.entries(buttons)) { byId(id).addEventListener("click", act); }
}
