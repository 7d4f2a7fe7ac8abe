#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Opens a page of `ebb report` from the disk in a headless Chromium and uses it as a person would.

    report_page.py PAGE.html REPORT.json NAME [layers] [snapshot]     the tests; REPORT.json is `ebb report --json` of the
                                          same recording, which has equal layers, or is make_training.py's
    report_page.py --shots FOLDER PAGE.html       pictures in light and dark, for the documents

Exit status 77: Selenium, Chromium or its driver is missing, or the browser does not start.
"""
import json
import os
import shutil
import sys
import time

try:
    from selenium import webdriver
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.chrome.service import Service
except ImportError:
    sys.exit(77)

DRIVER, BROWSER = shutil.which("chromedriver"), shutil.which("chromium")
failed = False


def open_browser(width=1280, height=1000):
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                     f"--window-size={width},{height}"]:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    try:
        return webdriver.Chrome(service=Service(DRIVER, log_path=os.devnull), options=options)
    except WebDriverException as error:
        print(f"the browser does not start: {error.msg}", file=sys.stderr)
        sys.exit(77)


def set_scheme(browser, scheme):
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def check(name, good, why=""):
    global failed
    failed = failed or not good
    print(f"{'ok' if good else 'not ok'} - {name}{'' if good else ': ' + str(why)}", flush=True)


def member(report, key):
    for part in key.split("."):
        report = report[part]
    return report


def check_console(browser, name):
    lines = [line for line in browser.get_log("browser") if line["level"] in ("SEVERE", "WARNING")]
    check(f"{name}: no console error", not lines, lines[:3])


def check_numbers(browser, report, name):
    shown = browser.find_elements(By.CSS_SELECTOR, "#facts data")
    check(f"{name}: the page shows facts", len(shown) >= 4, len(shown))
    wrong = []
    for fact in shown:
        key, value = fact.get_attribute("data-key"), fact.get_attribute("value")
        wanted = member(report, key)
        same = value == wanted if isinstance(wanted, str) else json.loads(value) == wanted
        if not same or wanted is None or fact.text == "unknown":
            wrong.append((key, value, wanted, fact.text))
    check(f"{name}: numbers on the page are those of --json", not wrong, wrong)
    inside = json.loads(browser.execute_script("return document.getElementById('ebb-data').textContent"))["report"]
    check(f"{name}: the report in the page is the one of --json", inside == report)


def check_peak_picture(browser, report, name):
    """The curve's highest point, summed over roles, is the peak."""
    highest = browser.execute_script(
        "return Math.max(...D.curve.x.map((_, i) => Object.values(D.curve.live).reduce((sum, b) => sum + b[i], 0)))")
    check(f"{name}: the curve's top is the peak", highest == report["peak_bytes"], highest)


def view_of(browser):
    return [float(x) for x in browser.find_element(By.ID, "range").get_attribute("data-view").split()]


def check_zoom(browser, name):
    everything = view_of(browser)
    browser.find_element(By.ID, "zoom-in").click()
    nearer = view_of(browser)
    check(f"{name}: a button zooms", nearer[1] - nearer[0] < everything[1] - everything[0], (everything, nearer))
    canvas = browser.find_element(By.ID, "gantt")
    canvas.send_keys("+")
    nearest = view_of(browser)
    check(f"{name}: a key zooms", nearest[1] - nearest[0] < nearer[1] - nearer[0], (nearer, nearest))
    canvas.send_keys(Keys.ARROW_RIGHT)
    moved = view_of(browser)
    check(f"{name}: an arrow moves", moved[0] > nearest[0], (nearest, moved))
    canvas.send_keys("0")
    check(f"{name}: all of it again", view_of(browser) == everything, view_of(browser))


def check_story(browser, name):
    """Click the middle of the widest rectangle; then walk on with a key."""
    x, y = browser.execute_script("""
        const { x, y } = charts.gantt.scales, area = charts.gantt.chartArea;
        let best = 0;
        for (let i = 1; i < blocks.n; i++) { if (B.size[i] * B.life[i] > B.size[best] * B.life[best]) { best = i; } }
        const [left, top, width, height] = rectangle(best, x, y);
        return [left + width / 2, top + height / 2];""")
    canvas = browser.find_element(By.ID, "gantt")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    ActionChains(browser).move_to_element_with_offset(
        canvas, x - canvas.size["width"] / 2, y - canvas.size["height"] / 2).click().perform()
    story = browser.find_element(By.ID, "story")
    is_there = browser.execute_script("""
        const [px, py] = arguments, near = 2; /* a click is at a whole pixel */
        const [left, top, width, height] = chosen < 0 ? [0, 0, 0, 0] : rectangle(chosen, charts.gantt.scales.x, charts.gantt.scales.y);
        return px > left - near && px < left + width + near && py > top - near && py < top + height + near;""", x, y)
    check(f"{name}: a click tells a block's story", is_there and "size" in story.text and "life" in story.text, story.text)
    check(f"{name}: the pointer shows a tip", browser.find_element(By.ID, "tip").is_displayed())
    first = story.get_attribute("data-block")
    canvas.send_keys("n")
    is_other = story.get_attribute("data-block") != first
    check(f"{name}: a key goes to the next block", is_other or browser.execute_script("return blocks.n") == 1, first)


def check_holders(browser, name):
    heads = browser.find_elements(By.CSS_SELECTOR, "#holders th button")
    if not heads:
        return
    heads[1].send_keys(Keys.ENTER)
    order = browser.execute_script(
        "return [...document.querySelectorAll('#holders td data')].map((d) => Number(d.value))")
    check(f"{name}: holders are sorted by a key", order == sorted(order, reverse=True), order[:5])
    stacks = browser.find_elements(By.CSS_SELECTOR, "#holders .more[aria-label='call stack']")
    if stacks:
        stacks[0].send_keys(Keys.ENTER)
        check(f"{name}: a call stack unfolds", len(browser.find_elements(By.CSS_SELECTOR, "#holders .frames li")) > 0)


def check_keyboard(browser, name):
    """Tab alone reaches the picture of blocks, from the page's beginning: before anything was clicked."""
    for _ in range(40):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        if browser.switch_to.active_element.get_attribute("id") == "gantt":
            check(f"{name}: tab reaches the blocks", True)
            return
    check(f"{name}: tab reaches the blocks", False)


def check_title(browser, report, name):
    recorded = browser.find_element(By.CSS_SELECTOR, ".recorded").text
    good = report["recorded"] in recorded and report["recorded"] in browser.title
    check(f"{name}: the title says what was recorded", good and report["name"] in browser.title, (browser.title, recorded))


def check_tables(browser, name):
    """No table is long before it is asked to be; asked, it has all its rows."""
    long = browser.execute_script("return [...document.querySelectorAll('table')].filter((t) => t.rows.length > 18).map((t) => t.id)")
    check(f"{name}: long tables are folded", not long, long)
    buttons = [b for b in browser.find_elements(By.CSS_SELECTOR, "button.rows") if b.is_displayed()]
    if buttons:
        wanted = int(buttons[0].text.split()[2].replace(",", ""))
        buttons[0].send_keys(Keys.ENTER)
        rows = browser.execute_script("return arguments[0].previousElementSibling.querySelectorAll('tbody tr').length", buttons[0])
        check(f"{name}: a folded table unfolds", rows == wanted, (rows, wanted))
        buttons[0].send_keys(Keys.ENTER)


def check_layers(browser, report, name):
    """Rows of equal layers add up to what --json has one by one; each can be seen."""
    folded = browser.execute_script("return D.holders.module.filter((row) => row.members.length > 1).map((row) => text(row.label))")
    check(f"{name}: equal layers are folded", any(".*" in label and "\u00d7" in label for label in folded), folded[:3])
    browser.execute_script("const g = byId('group'); g.value = 'module'; g.dispatchEvent(new Event('change'))")
    sums = browser.execute_script("return [D.holders.module, D.holders.module.map((r) => r.members.length > 0 ? r.members : [r]).flat()]"
                                  ".map((rows) => rows.reduce((sum, row) => sum + row.bytes, 0))")
    check(f"{name}: layers add up", sums[0] == sums[1] == report["peak_bytes"], sums)
    row = [b for b in browser.find_elements(By.CSS_SELECTOR, "#holders .more.unfolds") if b.get_attribute("aria-label") == "each of them"]
    row[0].send_keys(Keys.ENTER)
    check(f"{name}: layers unfold", len(browser.find_elements(By.CSS_SELECTOR, "#holders table tr")) > 1)


def check_find(browser, name):
    """By a word, and by size; what is not found is passed by."""
    field = browser.find_element(By.ID, "find-size")
    largest = browser.execute_script("return Math.max(...B.size)")
    field.send_keys(str(largest))
    found = browser.find_element(By.ID, "found").text
    wanted = browser.execute_script("return B.size.filter((size) => size >= Math.max(...B.size)).length")
    check(f"{name}: blocks are found by size", found.startswith(f"{wanted:,} block"), found)
    field.clear()
    word = browser.find_element(By.ID, "find-text")
    word.send_keys("no such words")
    check(f"{name}: nothing is found", browser.find_element(By.ID, "found").text.startswith("0 blocks"))
    browser.find_element(By.CSS_SELECTOR, "#find button[type=reset]").click()
    time.sleep(0.1)
    check(f"{name}: all of them again", browser.find_element(By.ID, "found").text == "" and browser.execute_script("return isFound(0)"))


def check_moment(browser, report, name):
    """The moment is at first the peak; keys go from event to event; what changed between two adds up."""
    words = browser.find_element(By.ID, "moment-words").text
    check(f"{name}: a moment, at first the peak", "(the peak)" in words and
          browser.execute_script("return liveBytes(moments.now)") == report["peak_bytes"], words)
    slider = browser.find_element(By.ID, "moment-at")
    slider.send_keys(Keys.ARROW_LEFT)
    check(f"{name}: a key goes to another moment", browser.find_element(By.ID, "moment-words").text != words or
          browser.execute_script("return moments.at.length") == 1)
    sums = browser.execute_script("""
        const changes = changesBetween(0, moments.peak, 'role').rows, add = (key) => changes.reduce((sum, row) => sum + row[key], 0);
        return [add('first') + add('came') - add('went'), add('second'), liveBytes(moments.peak)];""")
    check(f"{name}: what came and went between two moments adds up", sums[0] == sums[1] == sums[2], sums)


    live, before = browser.execute_script("""
        let before = 0;
        for (let i = 0; i < blocks.n; i++) { if ((B.flags[i] & 1) !== 0) { before += B.size[i]; } }
        return [liveBytes(0), before];""")
    check(f"{name}: what was there before is live at the first moment", live >= before, (live, before))


# Labels of a picture's horizontal axis that lie over one another.
CROSSED_LABELS = """
    return Object.entries(charts).filter(([, chart]) => chart.scales.x && ['linear', 'category'].includes(chart.scales.x.type)).map(([id, chart]) => {
        const axis = chart.scales.x, words = axis.ticks.map((tick, i) => [tick.label, axis.getPixelForTick(i)]);
        chart.ctx.font = Chart.defaults.font.size + 'px ' + Chart.defaults.font.family;
        const half = ([label]) => chart.ctx.measureText(label).width / 2;
        return words.filter((word, i) => i > 0 && words[i - 1][1] + half(words[i - 1]) > word[1] - half(word))
            .map(([label]) => id + ': ' + label);
    }).flat();"""


# Words of sentences and cells that go on in the next line between two small letters.
TORN_WORDS = """
    const torn = [], range = document.createRange();
    for (const box of document.querySelectorAll('#words p, #words li, td.long')) {
        const walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
        for (let node = walker.nextNode(); node; node = walker.nextNode()) {
            let before = null;
            for (let at = 0; at < node.length; at++) {
                range.setStart(node, at);
                range.setEnd(node, at + 1);
                const rect = range.getClientRects()[0];
                if (rect && before !== null && rect.top > before + 4 && /[a-z]{2}/.test(node.data.slice(at - 1, at + 1))) {
                    torn.push(node.data.slice(Math.max(0, at - 20), at) + '|' + node.data.slice(at, at + 20));
                }
                before = rect ? rect.top : before;
            }
        }
    }
    return torn;"""


def check_narrow(browser, name):
    """On a telephone nothing but tables is wider than the page, and those say so."""
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True})
    time.sleep(0.4)
    width = browser.execute_script("return document.documentElement.scrollWidth")
    check(f"{name}: 390 pixels are enough", width <= 390, width)
    silent = browser.execute_script("""return [...document.querySelectorAll('.scroll')].filter((box) => box.offsetParent &&
        (box.scrollWidth > box.clientWidth + 1) !== box.classList.contains('wide')).map((box) => box.firstElementChild.id)""")
    check(f"{name}: wide tables say that they scroll", not silent, silent)
    cut = browser.execute_script("""return [...document.querySelectorAll('th, .number')].filter((cell) => cell.offsetParent &&
        cell.getClientRects().length > 0 && getComputedStyle(cell).whiteSpace !== 'nowrap').map((cell) => cell.textContent)""")
    check(f"{name}: heads and numbers are whole", not cut, cut[:3])
    crossed = browser.execute_script(CROSSED_LABELS)
    check(f"{name}: no words of an axis lie over others", not crossed, crossed)
    torn = browser.execute_script(TORN_WORDS)
    check(f"{name}: words break where a name has parts", not torn, torn[:3])
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def check_one_moment(browser, report, name):
    """Nothing is drawn over time; what was live is shown where it lay."""
    shown = [s.get_attribute("id") for s in browser.find_elements(By.CSS_SELECTOR, "section, #moment-tools, #history")
             if s.is_displayed()]
    check(f"{name}: nothing over time", not {"memory", "blocks", "difference", "iteration", "moment-tools", "history"} & set(shown), shown)
    words = browser.find_element(By.TAG_NAME, "body").text
    check(f"{name}: no events and no peak", "the peak)" not in words and "of the peak" not in words and "at the peak" not in words, words)
    check(f"{name}: the map has what was live", browser.find_element(By.ID, "map").is_displayed() and
          browser.execute_script("return liveBytes(moments.now)") == report["end_live_bytes"])


def check_snapshot(browser, report, name):
    """What a snapshot's page has besides: roles from call stacks, blocks from before, segments by pool and stream."""
    roles = {share["role"] for share in report["live_at_peak"]}
    check(f"{name}: roles follow from call stacks", report["roles_inferred"] and {"activation", "optimizer_state"} <= roles, roles)
    shown = browser.find_element(By.ID, "legend").text
    check(f"{name}: roles colour the picture", "activation" in shown and "gradient" in shown, shown)
    check(f"{name}: what was there before is drawn as such", browser.find_element(By.ID, "ghosts").text.startswith("from before the recording: 12 blocks"))
    browser.find_element(By.CSS_SELECTOR, "[data-moment=reserved]").click()
    rows = browser.execute_script("return [...document.querySelectorAll('#pools tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))")
    groups = {(row[0], row[1]) for row in rows}
    check(f"{name}: free blocks by pool and stream", ("large blocks", "stream 0") in groups and ("large blocks", "stream 7") in groups, groups)
    reserved = browser.execute_script("return segmentsAt(moments.now).reduce((sum, s) => sum + s[1], 0)")
    check(f"{name}: segments add up to what is reserved", reserved == report["fragmentation"]["reserved_peak_bytes"], reserved)
    holes = browser.execute_script("return groupsAt(moments.now).map((g) => g.places).flat().reduce((sum, p) => sum + holesOf(p).reduce((a, b) => a + b, 0), 0)")
    live = browser.execute_script("return liveBytes(moments.now)")
    check(f"{name}: holes are what is not live", holes == reserved - live, (holes, reserved, live))
    canvas = browser.find_element(By.ID, "map")
    canvas.send_keys(Keys.ARROW_RIGHT)
    check(f"{name}: a key chooses a block of the map", "size" in browser.find_element(By.ID, "map-story").text)
    browser.find_element(By.CSS_SELECTOR, "[data-moment=refused]").click()
    check(f"{name}: the moment that ran out of memory", "out of memory" in browser.find_element(By.ID, "history").text)
    browser.find_element(By.ID, "find-text").send_keys("allreduce")
    found = browser.find_element(By.ID, "found").text
    check(f"{name}: blocks are found by a frame of their stack", found.startswith("15 blocks"), found)


def check_schemes(browser, name):
    """Both schemes: ink and paper differ, and change places."""
    light = []
    for scheme in ("light", "dark"):
        set_scheme(browser, scheme)
        time.sleep(0.3)
        light.append(browser.execute_script("""
            const of = (value) => value.match(/[0-9]+/g).slice(0, 3).reduce((sum, x) => sum + Number(x), 0);
            const style = getComputedStyle(document.body);
            return [of(style.backgroundColor), of(style.color)];"""))
    (paper, ink), (dark_paper, dark_ink) = light
    check(f"{name}: readable in light and in dark", paper - ink > 380 and dark_ink - dark_paper > 380, light)


def check_print(browser, name):
    data = browser.execute_cdp_cmd("Page.printToPDF", {})["data"]
    left = browser.execute_script("return document.documentElement.classList.contains('paper')")
    check(f"{name}: prints, and is as before", len(data) > 10000 and not left, (len(data), left))


def check_network(browser, name):
    loaded = browser.execute_script("return performance.getEntriesByType('resource').length")
    check(f"{name}: nothing is loaded", loaded == 0, loaded)
    labels = browser.execute_script(
        "return [...document.querySelectorAll('canvas')].filter((c) => c.offsetParent && !c.getAttribute('aria-label')).length")
    check(f"{name}: pictures have labels", labels == 0, labels)


def test(page, report_path, name, *more):
    with open(report_path, encoding="utf-8") as file:
        report = json.load(file)
    browser = open_browser()
    try:
        browser.get("file://" + os.path.abspath(page))
        check_numbers(browser, report, name)
        if report["is_moment"]:
            check_one_moment(browser, report, name)
        elif report["blocks"] > 0:
            check_keyboard(browser, name)
            check_peak_picture(browser, report, name)
            check_zoom(browser, name)
            check_story(browser, name)
            check_holders(browser, name)
            check_find(browser, name)
            check_moment(browser, report, name)
            if "layers" in more:
                check_layers(browser, report, name)
            if "snapshot" in more:
                check_snapshot(browser, report, name)
        check_title(browser, report, name)
        check_tables(browser, name)
        check_schemes(browser, name)
        check_print(browser, name)
        check_network(browser, name)
        check_narrow(browser, name)
        check_console(browser, name)
    finally:
        browser.quit()


def shrink(path):
    """Few colours are enough for a page; without Pillow the picture stays as large as it is."""
    try:
        from PIL import Image
    except ImportError:
        return
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(64, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


# An activation that lies idle long.
IDLE_BLOCK = """
    let best = -1;
    const worth = (i) => B.idle[i] * B.size[i];
    for (let i = 0; i < blocks.n; i++) {
        if (D.roles[B.role[i]] === 'activation' && (best < 0 || worth(i) > worth(best))) { best = i; }
    }
    if (best >= 0) { choose(best); }"""


def shoot(folder, page):
    browser = open_browser(1000, 860)
    try:
        for scheme in ("light", "dark"):
            set_scheme(browser, scheme)
            browser.get("file://" + os.path.abspath(page))
            time.sleep(0.5)
            browser.execute_script(IDLE_BLOCK)
            for name, top in (("words", "words"), ("blocks", "zoom-in"), ("story", "story"), ("moment", "moment"), ("idle", "idle")):
                path = os.path.join(folder, f"report-{name}-{scheme}.png")
                browser.execute_script(f"document.getElementById('{top}').scrollIntoView()")
                if name == "words":
                    browser.execute_script("window.scrollTo(0, 0)")
                time.sleep(0.3)
                browser.save_screenshot(path)
                shrink(path)
    finally:
        browser.quit()


if DRIVER is None or BROWSER is None:
    sys.exit(77)
if sys.argv[1] == "--shots":
    shoot(sys.argv[2], sys.argv[3])
else:
    test(*sys.argv[1:])
sys.exit(1 if failed else 0)
