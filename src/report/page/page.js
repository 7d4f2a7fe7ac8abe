/* SPDX-License-Identifier: Apache-2.0
 *
 * The page as a whole: what is filled once, and what is drawn again when colours change.
 */
"use strict";

function drawAll() {
  drawCharts();
  drawBlocks();
  drawMap();
}

breakLongWords(byId("words"));
fillTables();
startBlocks();
if (R.blocks > 0) {
  startFind();
  startMoments();
  startMap();
}
drawAll();
if (R.blocks > 0) {
  showMoment(moments.peak);
  showDifference();
}
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
window.addEventListener("beforeprint", () => { document.documentElement.classList.add("paper"); drawAll(); });
window.addEventListener("afterprint", () => { document.documentElement.classList.remove("paper"); drawAll(); });
