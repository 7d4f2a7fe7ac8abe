/* SPDX-License-Identifier: Apache-2.0
 *
 * The facts at the top and the tables: sorted by a click or a key on a column's head, rows with a call stack unfold.
 */
"use strict";

/* More rows than these unfold when they are asked for. */
const MAX_ROWS = 15;
const SHORT = 24; /* characters that stay in one line */

/* columns: {title, of(row), shown(row), number}; detail(row): an element below the row, or null; act(row): what a click
 * does, isNow(row): the row stands out. */
function fillTable(table, columns, rows, detail, { act, isNow } = {}) {
  const caption = table.caption;
  table.replaceChildren(...(caption ? [caption] : []));
  const body = element("tbody", {});
  let isFolded = rows.length > MAX_ROWS + 1;
  const heads = columns.map((column, i) => {
    const head = element("th", { scope: "col", class: column.number ? "number" : "" });
    head.append(element("button", { type: "button", onclick: () => sort(i) }, column.title));
    return head;
  });
  function sort(i) {
    const down = heads[i].getAttribute("aria-sort") !== "descending";
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    heads[i].setAttribute("aria-sort", down ? "descending" : "ascending");
    const of = columns[i].of;
    rows = rows.slice().sort((a, b) => (of(a) < of(b) ? -1 : of(a) > of(b) ? 1 : 0) * (down ? -1 : 1));
    fill();
  }
  function fill() {
    body.replaceChildren();
    for (const row of isFolded ? rows.slice(0, MAX_ROWS) : rows) { appendRow(body, columns, row, detail, act, isNow); }
  }
  table.append(element("thead", {}, element("tr", {}, ...heads)), body);
  fill();
  offerRest(table, rows.length, isFolded, (folded) => { isFolded = folded; fill(); });
}

/* A button below the table for the rows that are folded. */
function offerRest(table, n, isFolded, fold) {
  const box = table.parentElement, next = box.nextElementSibling;
  if (next && next.classList.contains("rows")) { next.remove(); }
  if (!isFolded) { return; }
  const words = (folded) => folded ? "show all " + countText(n) + " rows" : "show the first " + MAX_ROWS + " rows";
  const button = element("button", { type: "button", class: "rows", "aria-expanded": "false" }, words(true));
  button.addEventListener("click", () => {
    isFolded = !isFolded;
    fold(isFolded);
    button.textContent = words(isFolded);
    button.setAttribute("aria-expanded", String(!isFolded));
  });
  box.after(button);
}

/* A table that is wider than the page says so, and can be scrolled by keys. */
function watchWidths() {
  const look = (box) => {
    const isWide = box.scrollWidth > box.clientWidth + 1;
    box.classList.toggle("wide", isWide);
    if (isWide) {
      box.tabIndex = 0;
      box.setAttribute("role", "region");
      box.setAttribute("aria-label", "a table that scrolls sideways");
    } else {
      ["tabindex", "role", "aria-label"].forEach((name) => box.removeAttribute(name));
    }
  };
  const observer = new ResizeObserver((entries) => entries.forEach((entry) => look(entry.target.closest(".scroll"))));
  for (const box of document.querySelectorAll(".scroll")) {
    observer.observe(box);
    observer.observe(box.firstElementChild);
  }
}

function appendRow(body, columns, row, detail, act, isNow) {
  const cells = columns.map((column) => {
    const shown = column.shown(row);
    if (column.number) { return element("td", { class: "number" }, shown); }
    return shown.length > SHORT ? element("td", { class: "long" }, breakable(shown)) : element("td", { class: "short" }, shown);
  });
  const line = element("tr", isNow && isNow(row) ? { class: "now", "aria-current": "true" } : {}, ...cells);
  body.append(line);
  if (act) {
    const button = element("button", { type: "button", class: "more", onclick: () => act(row) });
    button.append(...cells[0].childNodes);
    cells[0].append(button);
  }
  if (!detail || !detail(row)) { return; }
  const label = row.members && row.members.length > 0 ? "each of them" : "call stack";
  const button = element("button", { type: "button", class: "more unfolds", "aria-expanded": "false", "aria-label": label }, "\u25b8");
  let shown = null;
  button.addEventListener("click", () => {
    if (shown) {
      shown.remove();
      shown = null;
    } else {
      shown = element("tr", {}, element("td", { colspan: String(columns.length) }, detail(row)));
      line.after(shown);
    }
    button.setAttribute("aria-expanded", String(shown !== null));
    button.textContent = shown ? "\u25be" : "\u25b8";
  });
  cells[0].prepend(button);
}

function textColumn(title, of) { return { title, of, shown: (row) => of(row) || "(no name)" }; }
function bytesColumn(title, of) {
  return { title, of: (row) => of(row) === null ? -1 : of(row), number: true, shown: (row) => dataElement("", of(row), bytesText(of(row))) };
}
function countColumn(title, of) { return { title, of, number: true, shown: (row) => countText(of(row)) }; }
function timeColumn(title, of) { return { title, of, number: true, shown: (row) => timeText(of(row)) }; }

/* ---- the tables ---- */

function fillFacts() {
  const facts = [
    ["source", "source", R.source, R.source || "unknown"],
    ["peak", "peak_bytes", R.peak_bytes, bytesText(R.peak_bytes)],
    ["live", "end_live_bytes", R.is_moment ? R.end_live_bytes : null, bytesText(R.end_live_bytes)],
    ["at", "peak_time_s", R.peak_time_s, secondsText(R.peak_time_s)],
    ["duration", "duration_s", R.duration_s, secondsText(R.duration_s)],
    ["events", "events", R.events, countText(R.events)],
    ["blocks", "blocks", R.blocks, countText(R.blocks)],
    [R.swappable.of_iteration ? "could leave in an iteration" : "could leave at times", "swappable.bytes", R.swappable.bytes, bytesText(R.swappable.bytes)],
    ["reserved", "fragmentation.reserved_peak_bytes", R.fragmentation.reserved_peak_bytes,
      bytesText(R.fragmentation.reserved_peak_bytes)],
    ["lost to fragmentation", "fragmentation.lost_bytes", R.fragmentation.lost_bytes, bytesText(R.fragmentation.lost_bytes)],
    ["half of intervals at most", "intervals.p50_s", R.intervals.p50_s, secondsText(R.intervals.p50_s)],
    ["iterations", "iteration.count", R.iteration.count, countText(R.iteration.count)],
  ];
  for (const [title, key, value, shown] of facts) {
    if (value === null) { continue; } /* what is not known is said in words, once */
    byId("facts").append(element("div", {}, element("dt", {}, title), element("dd", {}, dataElement(key, value, shown))));
  }
  byId("version").textContent = D.version;
}

/* The layers of a folded row, each with its call stack. */
function holderDetail(row) {
  if (row.members && row.members.length > 0) {
    const table = element("table", {});
    const body = element("tbody", {});
    table.append(body);
    const columns = [textColumn("who", (one) => text(one.label)), bytesColumn("bytes", (one) => one.bytes),
      { title: OF_HELD, of: (one) => one.bytes, number: true, shown: (one) => percentText(one.bytes, HELD_BYTES) },
      countColumn("blocks", (one) => one.blocks)];
    for (const one of row.members) { appendRow(body, columns, one, holderDetail); }
    return table;
  }
  return row.stack >= 0 ? framesElement(row.stack) : null;
}

function fillHolders() {
  const names = { site: "call site", stack: "call stack", module: "module", name: "name" };
  const groups = Object.keys(D.holders).filter((key) => D.holders[key].length > 0);
  if (groups.length === 0) { hideSection("holders-section"); return; }
  const select = byId("group"), first = R.holders.length > 0 ? R.holders[0].by : groups[0];
  for (const key of groups) { select.append(element("option", { value: key }, names[key])); }
  const columns = [textColumn("who", (row) => text(row.label)), bytesColumn("bytes", (row) => row.bytes),
    { title: OF_HELD, of: (row) => row.bytes, number: true, shown: (row) => percentText(row.bytes, HELD_BYTES) },
    countColumn("blocks", (row) => row.blocks),
    textColumn("mostly", (row) => roleText(D.roles[row.roles.indexOf(Math.max(...row.roles))]))];
  const hasRoles = R.tells.roles || R.roles_inferred;
  const show = () => fillTable(byId("holders"), hasRoles ? columns : columns.slice(0, -1), D.holders[select.value], holderDetail);
  select.addEventListener("change", show);
  select.value = first;
  show();
}

function fillShares() {
  const sum = (shares) => shares.reduce((all, share) => all + share.bytes, 0);
  const peak = sum(R.live_at_peak), all = sum(R.static);
  const of = (shares, role) => (shares.find((share) => share.role === role) || { bytes: 0 }).bytes;
  const rows = D.roles.filter((role) => of(R.live_at_peak, role) + of(R.static, role) > 0);
  const columns = [textColumn("role", roleText), bytesColumn(HELD_WHEN, (role) => of(R.live_at_peak, role)),
    { title: "%", number: true, of: (role) => of(R.live_at_peak, role), shown: (role) => percentText(of(R.live_at_peak, role), peak) },
    bytesColumn(R.static_of_iteration ? "of an iteration" : "of the recording", (role) => of(R.static, role)),
    { title: "%", number: true, of: (role) => of(R.static, role), shown: (role) => percentText(of(R.static, role), all) }];
  fillTable(byId("shares"), R.is_moment ? columns.slice(0, 3) : columns, rows);
}

function fillIntervals() {
  if (!(R.intervals.count > 0)) { hideSection("idle"); return; }
  fillTable(byId("pairs"), [textColumn("from", (pair) => pair.from), textColumn("to", (pair) => pair.to),
    countColumn("intervals", (pair) => pair.count), timeColumn("half at most", (pair) => pair.p50),
    timeColumn("90 % at most", (pair) => pair.p90), timeColumn("99 % at most", (pair) => pair.p99),
    timeColumn("longest", (pair) => pair.max)], D.intervals.pairs);
  const largest = standingOut().slice(0, 20);
  fillTable(byId("outliers"), [textColumn("block", (o) => blockName(o.number, o.name)), timeColumn("idle", (o) => o.ns),
    bytesColumn("bytes", (o) => o.bytes), textColumn("between", (o) => o.between || "two accesses"),
    textColumn("could leave", (o) => o.bytes <= o.ns * R.swappable.bytes_per_s / 1e9 ? "yes" : "no")], largest);
  byId("outliers").hidden = largest.length === 0;
}

function fillFragmentation() {
  const f = R.fragmentation;
  if (f.reserved_peak_bytes === null) { hideSection("fragmentation"); return; }
  const rows = [["reserved, at most", f.reserved_peak_bytes], ["of it not live", f.lost_bytes],
    ["lost to rounding", f.rounding_bytes], ["free beside live blocks", f.pinned_bytes], ["in empty segments", f.empty_bytes]];
  const known = rows.filter((row) => row[1] !== null);
  fillTable(byId("lost"), [textColumn("what", (row) => row[0]), bytesColumn("bytes", (row) => row[1])], known);
  if (D.pinners.length === 0) { byId("pinners").hidden = true; }
  fillTable(byId("pinners"), [textColumn("who", (row) => text(row.label)), bytesColumn("free bytes kept", (row) => row.bytes),
    countColumn("blocks", (row) => row.blocks)], D.pinners, (row) => row.stack >= 0 ? framesElement(row.stack) : null);
  const pins = (segment) => {
    const list = element("ul", {});
    for (const [number, name, bytes] of segment.pins) { list.append(element("li", {}, blockName(number, name) + ", " + bytesText(bytes))); }
    return list;
  };
  fillTable(byId("segments"), [textColumn("address", (row) => row.address), bytesColumn("bytes", (row) => row.bytes),
    bytesColumn("free", (row) => row.free), bytesColumn("largest hole", (row) => row.largest_free),
    countColumn("live blocks", (row) => row.n_pins)], D.segments, (row) => row.pins.length > 0 ? pins(row) : null);
}

function fillWhatIfs() {
  const plain = R.what_if.find((row) => row.key === "pytorch");
  const isSame = (row) => row.key.startsWith("pytorch:") && row.bytes === plain.bytes;
  const known = R.what_if.filter((row) => row.bytes !== null);
  const rows = known.filter((row) => !isSame(row)), same = known.filter(isSame);
  if (rows.length < 2) { hideSection("what-if"); return; }
  if (same.length > 0) {
    rows.push({ ...plain, about: plain.about.replace(" with its defaults", ""), setting: "the same: " + same.map((row) => row.setting).join(", ") });
  }
  fillTable(byId("what-ifs"), [textColumn("what", (row) => row.about + (row.setting ? ", " + row.setting : "") + (row.of_iteration ? " (of one iteration)" : "")),
    bytesColumn("bytes", (row) => row.bytes),
    { title: "against now", number: true, of: (row) => row.bytes,
      shown: (row) => percentText(row.bytes, row.is_reserved && R.fragmentation.reserved_peak_bytes || R.peak_bytes) }], rows);
}

function fillIteration() {
  const it = R.iteration;
  const none = {
    unknown: "No iteration of a training was found.",
    forward: "No iteration: forward passes only, no optimizer stepped.",
    backward: "No iteration: forward and backward passes, but no optimizer stepped.",
    training: "No iteration was found, though an optimizer stepped: the recording does not repeat itself.",
  };
  byId("iteration-words").textContent = !it.found ? none[it.work] :
    it.count === 1 ? "One pass of " + countText(it.length_events) + " events, as marked, from event " +
    countText(it.first_event) + " on; nothing is repeated." :
    countText(it.count) + " iterations of about " + countText(it.length_events) + " events, from event " +
    countText(it.first_event) + " on; confidence " + (100 * it.confidence).toFixed(0) + " %.";
  if (D.parts.length === 0) { byId("parts").parentElement.hidden = true; }
}

function fillTables() {
  fillFacts();
  if (R.blocks === 0) { ["memory", "blocks", "moment", "difference"].forEach(hideSection); }
  if (R.is_moment) {
    byId("reserved").parentElement.hidden = true;
    ["memory", "blocks", "difference", "moment-tools", "moment-how", "iteration"].forEach(hideSection);
    byId("holders-h").textContent = "Who holds what is live";
    byId("moment-h").textContent = "When the snapshot was taken";
  }
  if (R.blocks > 0 && (R.tells.roles || R.roles_inferred)) {
    fillShares();
  } else {
    hideSection("roles");
  }
  fillHolders();
  fillIntervals();
  fillFragmentation();
  fillWhatIfs();
  fillIteration();
  byId("inferred").hidden = !R.roles_inferred;
  watchWidths();
}
