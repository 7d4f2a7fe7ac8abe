/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding blocks: by name, a frame of the call stack, address, role, size, and when they live. Other blocks fade in
 * the pictures, and the keys that go from block to block pass it by.
 */
"use strict";

const finding = { is: false, good: null };

function isFound(i) { return !finding.is || finding.good[i] === 1; }

/* "1.5 MiB", "2k", "4096"; 0 for nothing, NaN for text that is not a size. */
function sizeOf(words) {
  const match = /^\s*([0-9]*\.?[0-9]+)\s*([kmgt]?)(i?)b?\s*$/i.exec(words);
  if (!match) { return words.trim() === "" ? 0 : NaN; }
  return Number(match[1]) * Math.pow(1024, " kmgt".indexOf(match[2].toLowerCase() || " "));
}

/* For each frame, whether it or one that called it has the words. A caller may have any number, so chains are walked. */
function framesWith(words) {
  const has = new Int8Array(D.frames.length / FRAME).fill(-1);
  for (let i = 0; i < has.length; i++) {
    const chain = [];
    let at = i;
    while (at >= 0 && has[at] < 0) {
      chain.push(at);
      has[at] = frameText(at).toLowerCase().includes(words) ? 1 : -1;
      if (has[at] === 1) { break; }
      at = D.frames[at * FRAME];
    }
    const end = at >= 0 && has[at] === 1 ? 1 : 0;
    for (const one of chain) { has[one] = Math.max(has[one], end); }
  }
  return has;
}

function find() {
  const words = byId("find-text").value.trim().toLowerCase(), role = byId("find-role").value, when = byId("find-when").value;
  const least = sizeOf(byId("find-size").value);
  byId("find-size").setAttribute("aria-invalid", String(Number.isNaN(least)));
  finding.is = words !== "" || role !== "" || when !== "" || least > 0;
  finding.good = new Uint8Array(blocks.n);
  const stacks = words !== "" ? framesWith(words) : null, found = [];
  for (let i = 0; i < blocks.n; i++) {
    const named = words === "" || blockName(B.number[i], B.name[i]).toLowerCase().includes(words) ||
      (B.stack[i] >= 0 && stacks[B.stack[i]] === 1) || (addressText(i) || "").includes(words);
    const lives = when === "" || (when === "peak" ? (B.flags[i] & 2) !== 0 : moments.now >= 0 && isLiveAt(i, moments.now));
    if (!named || !lives || !(B.size[i] >= (least || 0)) || (role !== "" && D.roles[B.role[i]] !== role)) { continue; }
    finding.good[i] = 1;
    found.push(i);
  }
  showFound(found);
  charts.gantt.draw();
  drawMap();
}

function showFound(found) {
  byId("found-box").hidden = !finding.is || found.length === 0;
  const rest = B.rest > 0 ? ", of the " + countText(blocks.n) + " with the greatest area" : "";
  const bytes = found.reduce((sum, i) => sum + B.size[i], 0);
  byId("found").textContent = !finding.is ? "" : countText(found.length) + (found.length === 1 ? " block" : " blocks") + rest +
    (found.length > 0 ? ", " + bytesText(bytes) + " in all" : "");
  found.sort((a, b) => B.size[b] - B.size[a]);
  const columns = [textColumn("block", (i) => blockName(B.number[i], B.name[i])), bytesColumn("bytes", (i) => B.size[i]),
    textColumn("role", (i) => roleText(D.roles[B.role[i]])), textColumn("life", lifeText)];
  if (R.tells.stacks) { columns.push(textColumn("call site", (i) => siteText(B.stack[i]))); }
  fillTable(byId("found-blocks"), columns, finding.is ? found.slice(0, 500) : [], null, { act: choose });
}

function startFind() {
  const used = new Set(B.role);
  D.roles.forEach((role, i) => {
    if (used.has(i)) { byId("find-role").append(element("option", { value: role }, roleText(role))); }
  });
  const form = byId("find");
  form.addEventListener("input", find);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => window.setTimeout(find, 0)); /* once its fields are empty */
}
