#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Opens a page of `ebb report` from the disk in a headless Chromium and uses it as a person would.

    report_page.py PAGE.html REPORT.json NAME     the tests; REPORT.json is `ebb report --json` of the same recording
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
    check(f"{name}: the page shows facts", len(shown) >= 8, len(shown))
    wrong = []
    for fact in shown:
        key, value = fact.get_attribute("data-key"), fact.get_attribute("value")
        wanted = member(report, key)
        same = value == wanted if isinstance(wanted, str) else json.loads(value) == wanted
        if not same or (wanted is None) != (fact.text in ("unknown", "none found")):
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
    stacks = browser.find_elements(By.CSS_SELECTOR, "#holders .more")
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


def test(page, report_path, name):
    with open(report_path, encoding="utf-8") as file:
        report = json.load(file)
    browser = open_browser()
    try:
        browser.get("file://" + os.path.abspath(page))
        check_numbers(browser, report, name)
        if report["blocks"] > 0:
            check_keyboard(browser, name)
            check_peak_picture(browser, report, name)
            check_zoom(browser, name)
            check_story(browser, name)
            check_holders(browser, name)
        check_schemes(browser, name)
        check_print(browser, name)
        check_network(browser, name)
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
            for name, top in (("words", "words"), ("blocks", "memory"), ("story", "story"), ("idle", "idle")):
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
    test(*sys.argv[1:4])
sys.exit(1 if failed else 0)
