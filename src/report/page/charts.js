/* SPDX-License-Identifier: Apache-2.0
 *
 * The pictures that Chart.js draws by itself. Each is made by a function, so that all can be made again in other colours
 * when the reader's scheme changes or the page is printed.
 */
"use strict";

const charts = {};

function makeChart(id, label, config) {
  if (charts[id]) { charts[id].destroy(); }
  byId(id).setAttribute("aria-label", label);
  config.options = Object.assign({ animation: false, maintainAspectRatio: false, responsive: true }, config.options);
  charts[id] = new Chart(byId(id), config);
}

function setTicks(axis, values) { axis.ticks = values.map((value) => ({ value })); }

/* The ends and what has room for its words between them. */
function thinTicks(axis) {
  const values = axis.ticks.map((tick) => tick.value), last = values[values.length - 1];
  const widths = values.map((value) => axis.ctx.measureText(xText(value)).width);
  const room = (Math.max(...widths) + 16) * (axis.max - axis.min) / Math.max(axis.maxWidth, 1);
  let kept = -Infinity;
  setTicks(axis, values.filter((value) => {
    const isKept = value === last || (value - kept >= room && last - value >= room);
    kept = isKept ? value : kept;
    return isKept;
  }));
}

function xAxis(more) {
  return Object.assign({ type: "linear", min: 0, max: Math.max(D.end, 1), bounds: "data", afterBuildTicks: thinTicks,
    ticks: { callback: xText, maxTicksLimit: 9, maxRotation: 0, autoSkip: false }, grid: { color: colour("line") } }, more);
}

/* Ticks at multiples of a power of two. */
function byteTicks(axis) {
  const step = byteStep(axis.max - axis.min), values = [];
  for (let at = Math.ceil(axis.min / step) * step; at <= axis.max; at += step) { values.push(at); }
  setTicks(axis, values);
}

function bytesAxis(more) {
  return Object.assign({ type: "linear", min: 0, grid: { color: colour("line") }, afterBuildTicks: byteTicks,
    ticks: { callback: bytesText, maxRotation: 0, autoSkipPadding: 12 } }, more);
}

/* Ticks at powers of ratio, from 1. */
function logAxis(textOf, title, ratio) {
  const ticks = (axis) => {
    const values = [];
    for (let at = 1; at <= axis.max; at *= ratio) { if (at >= axis.min) { values.push(at); } }
    setTicks(axis, values);
  };
  return { type: "logarithmic", grid: { color: colour("line") }, title: { display: true, text: title },
    afterBuildTicks: ticks, ticks: { callback: textOf, maxRotation: 0 } };
}

function points(xs, ys) { return xs.map((x, i) => ({ x, y: ys[i] })); }

/* Words beside a vertical line, on paper of their own: no one ink is legible on all roles' colours. */
function label(ctx, words, at, area) {
  ctx.font = "600 13px system-ui, sans-serif";
  const width = ctx.measureText(words).width + 10, left = at > (area.left + area.right) / 2 ? at - width - 3 : at + 3;
  ctx.setLineDash([]);
  ctx.lineWidth = 1;
  ctx.fillStyle = colour("paper");
  ctx.strokeStyle = colour("mark");
  ctx.fillRect(left, area.top + 2, width, 20);
  ctx.strokeRect(left, area.top + 2, width, 20);
  ctx.fillStyle = colour("mark");
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  ctx.fillText(words, left + 5, area.top + 12.5);
}

/* Vertical lines: where iterations begin, the peak; and the stretch that the picture of blocks shows. */
const marks = {
  id: "marks",
  beforeDatasetsDraw(chart) {
    const { ctx, chartArea: area, scales: { x } } = chart, view = window.blocksView;
    if (!view || (view.x0 <= 0 && view.x1 >= D.end)) { return; }
    ctx.save();
    ctx.fillStyle = colour("shade");
    ctx.fillRect(x.getPixelForValue(view.x0), area.top, x.getPixelForValue(view.x1) - x.getPixelForValue(view.x0),
                 area.bottom - area.top);
    ctx.restore();
  },
  afterDatasetsDraw(chart) {
    const { ctx, chartArea: area, scales: { x } } = chart;
    const line = (value, stroke, dash) => {
      ctx.strokeStyle = stroke;
      ctx.setLineDash(dash);
      ctx.beginPath();
      ctx.moveTo(x.getPixelForValue(value), area.top);
      ctx.lineTo(x.getPixelForValue(value), area.bottom);
      ctx.stroke();
    };
    ctx.save();
    ctx.lineWidth = 1;
    const begins = D.parts.filter((part) => part.kind === "iteration");
    if (begins.length <= 200) { begins.forEach((part) => line(part.x, colour("muted"), [])); }
    ctx.lineWidth = 2;
    line(D.curve.peak_x, colour("paper"), []);
    line(D.curve.peak_x, colour("mark"), [6, 4]);
    if (moments.now >= 0) { line(moments.at[moments.now], colour("accent"), []); }
    label(ctx, "peak " + bytesText(R.peak_bytes), x.getPixelForValue(D.curve.peak_x), area);
    ctx.restore();
  },
};

function drawCurve() {
  const roles = Object.keys(ROLE_COLOURS).filter((role) => D.curve.live[role]);
  const datasets = roles.map((role) => [role, D.curve.live[role]]).map(([role, bytes], i) => ({
    label: roleText(role), data: points(D.curve.x, bytes), backgroundColor: roleColour(role), borderColor: roleColour(role),
    borderWidth: 0, pointRadius: 0, fill: i === 0 ? "origin" : "-1", stack: "live", parsing: false,
  }));
  if (D.curve.reserved) {
    datasets.push({ label: "reserved", data: points(D.curve.x, D.curve.reserved), borderColor: colour("ink"),
      borderWidth: 1.5, pointRadius: 0, fill: false, stack: "reserved", parsing: false });
  }
  makeChart("curve", "live bytes over time by role; the peak is " + bytesText(R.peak_bytes) + " at " + xText(D.curve.peak_x), {
    type: "line", data: { datasets }, plugins: [marks],
    options: {
      scales: { x: xAxis(), y: bytesAxis({ stacked: true }) },
      interaction: { mode: "nearest", axis: "x", intersect: false },
      onClick: (event, _, chart) => showMoment(momentNear(chart.scales.x.getValueForPixel(event.x))),
      plugins: {
        legend: { position: "bottom", labels: { boxWidth: 14 } },
        tooltip: { callbacks: { title: (items) => items.length ? xText(items[0].parsed.x) : "",
          label: (item) => item.dataset.label + " " + bytesText(item.raw.y) } },
      },
    },
  });
}

/* ---- intervals ---- */

const PAIR_COLOURS = ["#2f7fc4", "#e69f00", "#1f9e77", "#c26aa0", "#8066cc", "#d95f30"];

function drawCdf() {
  const all = D.intervals.pairs[0];
  const largest = D.intervals.pairs.slice(1).sort((a, b) => b.count - a.count).slice(0, 5);
  const datasets = [all, ...largest].map((pair, i) => {
    const data = [];
    for (let k = 0; k < pair.cdf.length; k += 2) { data.push({ x: Math.max(pair.cdf[k], 1), y: 100 * pair.cdf[k + 1] }); }
    return { label: i === 0 ? "all" : pair.from + " to " + pair.to, data, parsing: false, pointRadius: 0,
      borderColor: PAIR_COLOURS[i], borderWidth: i === 0 ? 3 : 1.5, showLine: true };
  });
  makeChart("cdf", "share of intervals that are no longer than this; half are at most " + timeText(all.p50), {
    type: "scatter", data: { datasets },
    options: {
      scales: { x: logAxis(timeText, "interval", 10),
        y: { min: 0, max: 100, grid: { color: colour("line") }, ticks: { callback: (value) => value + " %" } } },
      plugins: { legend: { position: "bottom", labels: { boxWidth: 14 } },
        tooltip: { callbacks: { label: (item) => item.dataset.label + ": " + item.parsed.y.toFixed(1) + " % are at most " +
          timeText(item.parsed.x) } } },
    },
  });
}

function drawScatter() {
  const cells = [], radii = [];
  for (let i = 0; i + 2 < D.intervals.density.length; i += 3) {
    cells.push({ x: Math.pow(2, (D.intervals.density[i] + 0.5) / 4), y: Math.pow(2, (D.intervals.density[i + 1] + 0.5) / 4),
      n: D.intervals.density[i + 2] });
    radii.push(1.5 + Math.log2(1 + D.intervals.density[i + 2]) / 2);
  }
  const outliers = standingOut().map((o) => ({ x: o.ns, y: Math.max(o.bytes, 1), outlier: o }));
  const xs = cells.concat(outliers).map((point) => point.x), ys = cells.concat(outliers).map((point) => point.y);
  const rate = R.swappable.bytes_per_s / 1e9; /* bytes per ns */
  const low = Math.max(Math.min(...xs), Math.min(...ys) / rate), high = Math.max(...xs);
  const datasets = [
    { label: "intervals", data: cells, parsing: false, pointRadius: radii, backgroundColor: "#2f7fc488", borderWidth: 0 },
    outliers.length === 0 ? null : { label: D.intervals.n_outliers > 0 ? "outliers" : "largest", data: outliers, parsing: false, pointRadius: 4, pointStyle: "rectRot", backgroundColor: "#d95f30" },
  ].filter((set) => set !== null);
  if (rate > 0 && low < high) {
    datasets.push({ label: "could leave below", data: [{ x: low, y: low * rate }, { x: high, y: high * rate }],
      parsing: false, pointRadius: 0, showLine: true, borderColor: colour("mark"), borderDash: [6, 4], borderWidth: 1.5 });
  }
  makeChart("scatter", countText(D.intervals.n_outliers) + " outliers by interval and size", {
    type: "scatter", data: { datasets },
    options: {
      scales: { x: logAxis(timeText, "interval", 10), y: logAxis(bytesText, "size of the block", 32) },
      plugins: { legend: { position: "bottom", labels: { boxWidth: 14 } }, tooltip: { callbacks: { label: (item) => {
        const point = item.raw, where = timeText(point.x) + ", " + bytesText(Math.round(point.y));
        if (point.outlier) { return blockName(point.outlier.number, point.outlier.name) + ": " + where; }
        return point.n ? countText(point.n) + " intervals of about " + where : where;
      } } } },
    },
  });
}

/* ---- bars ---- */

function drawBreakdown() {
  const rows = [[HELD_WHEN, R.live_at_peak], [R.static_of_iteration ? "of an iteration" : "of the recording", R.static]];
  if (R.is_moment) { rows.pop(); }
  const roles = Object.keys(ROLE_COLOURS).filter((role) => rows.some(([, shares]) => shares.some((share) => share.role === role)));
  const of = (shares, role) => (shares.find((share) => share.role === role) || { bytes: 0 }).bytes;
  makeChart("breakdown", "bytes by role, " + HELD_WHEN + (R.is_moment ? "" : " and in all") + "; the table below has the figures", {
    type: "bar",
    data: { labels: rows.map(([name]) => name), datasets: roles.map((role) => ({ label: roleText(role),
      data: rows.map(([, shares]) => of(shares, role)), backgroundColor: roleColour(role) })) },
    options: { indexAxis: "y", scales: { x: bytesAxis({ stacked: true }), y: { stacked: true, grid: { display: false } } },
      plugins: { legend: { position: "bottom", labels: { boxWidth: 14 } },
        tooltip: { callbacks: { label: (item) => item.dataset.label + " " + bytesText(item.raw) } } } },
  });
}

function drawReserved() {
  const live = D.curve.x.map((_, i) => Object.values(D.curve.live).reduce((sum, bytes) => sum + bytes[i], 0));
  const datasets = [
    { label: "live", data: points(D.curve.x, live), fill: "origin", backgroundColor: "#1f9e7799", borderColor: "#1f9e77" },
    { label: "reserved", data: points(D.curve.x, D.curve.reserved), fill: "-1", backgroundColor: "#d95f3066",
      borderColor: "#d95f30" },
  ].map((set) => Object.assign(set, { parsing: false, pointRadius: 0, borderWidth: 1.5 }));
  makeChart("reserved", "reserved and live bytes over time", {
    type: "line", data: { datasets },
    options: { scales: { x: xAxis(), y: bytesAxis() },
      interaction: { mode: "nearest", axis: "x", intersect: false },
      plugins: { legend: { position: "bottom", labels: { boxWidth: 14 } }, tooltip: { callbacks: {
        title: (items) => items.length ? xText(items[0].parsed.x) : "",
        label: (item) => item.dataset.label + " " + bytesText(item.raw.y) } } } },
  });
}

/* The words of the iterations, and of what is between them, that have room. */
function thinParts(axis, names, isIteration) {
  const slot = axis.maxWidth / names.length, kept = [];
  axis.ctx.font = Chart.defaults.font.size + "px " + Chart.defaults.font.family;
  for (const first of [true, false]) {
    names.forEach((name, at) => {
      const half = axis.ctx.measureText(name).width / 2 + 4;
      const fits = kept.every((other) => Math.abs(other.at - at) * slot >= other.half + half);
      if (isIteration[at] === first && fits) { kept.push({ at, half }); }
    });
  }
  setTicks(axis, kept.map((one) => one.at).sort((a, b) => a - b));
}

function drawParts() {
  const shown = D.parts.slice(0, 400);
  const shades = { iteration: "#1f9e77", before: "#8c8c8c", between: "#e69f00", after: "#8c8c8c" };
  let iterations = 0;
  const names = shown.map((part) => part.kind === "iteration" ? "iteration " + ++iterations : part.kind);
  makeChart("parts", "events of each part of the recording", {
    type: "bar",
    data: { labels: names,
      datasets: [{ label: "events", data: shown.map((part) => part.events), backgroundColor: shown.map((part) => shades[part.kind]) }] },
    options: { scales: { x: { ticks: { autoSkip: false, maxRotation: 0 }, grid: { display: false },
      afterBuildTicks: (axis) => thinParts(axis, names, shown.map((part) => part.kind === "iteration")) },
      y: { beginAtZero: true, grid: { color: colour("line") }, title: { display: true, text: "events" } } },
      plugins: { legend: { display: false }, tooltip: { callbacks: { label: (item) => countText(item.raw) + " events, regularity " +
        (100 * shown[item.dataIndex].regularity).toFixed(1) + " %" } } } },
  });
}

function drawCharts() {
  Chart.defaults.color = colour("ink");
  Chart.defaults.borderColor = colour("line");
  Chart.defaults.font.family = "system-ui, sans-serif";
  if (R.blocks > 0) {
    if (!R.is_moment) { drawCurve(); }
    if (R.tells.roles || R.roles_inferred) { drawBreakdown(); }
  }
  if (R.intervals.count > 0) { drawCdf(); drawScatter(); }
  if (D.curve.reserved && !R.is_moment) { drawReserved(); }
  if (D.parts.length > 0) { drawParts(); }
}
