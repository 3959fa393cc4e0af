"""The page of the explorer in headless Chromium: mouse, keyboard, names for screen readers.

They need the package selenium (extra "dev"), and Debian's packages chromium and chromium-driver.
After every test, the browser has written nothing to its console, and has asked only 127.0.0.1.
"""

import json
import shutil
import threading
import time
from urllib.parse import urlsplit

import numpy as np
import pytest
from explored import MODELS, Clicks, numbers
from extras import extra

import pgmengine as pgm
from pgmengine.apps.explorer.server import ExplorerServer
from pgmengine.apps.explorer.session import Session

pytestmark = pytest.mark.long

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --window-size=1500,1000"
)
NEEDED = ("chromium", "chromedriver")


@pytest.fixture(scope="module")
def chromium():
    extra("selenium")
    from selenium import webdriver

    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        pytest.skip(f"{' and '.join(missing)} not found: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in FLAGS.split():
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    yield found
    found.quit()


@pytest.fixture
def page(chromium):
    """A function that opens the page of a model; what the browser did is checked at the end."""
    servers = []

    def opened(model, evidence=None):
        server = ExplorerServer(Session(model, evidence))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        servers.append((server, thread))
        return Page(chromium, server)

    yield opened
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()
    assert chromium.get_log("browser") == []
    asked = [json.loads(entry["message"])["message"] for entry in chromium.get_log("performance")]
    urls = [
        one["params"]["request"]["url"]
        for one in asked
        if one["method"] == "Network.requestWillBeSent"
    ]
    assert urls and {urlsplit(url).hostname for url in urls} == {"127.0.0.1"}


class Page:
    """The page of a server in the browser."""

    def __init__(self, chromium, server):
        extra("selenium")
        from selenium.webdriver import ActionChains, Keys

        self.chromium, self.server, self.keys = chromium, server, Keys
        self.actions = lambda: ActionChains(chromium, duration=0)
        chromium.get(server.address)
        self.wait()

    def js(self, code, *arguments):
        return self.chromium.execute_script(code, *arguments)

    def all(self, selector):
        return self.chromium.find_elements("css selector", selector)

    def wait(self, seconds=60):
        """Wait until the answer of the last action is shown."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.js(
                "return document.querySelector('.pgm-foot b') !== null && "
                "!document.querySelector('[aria-busy]')"
            ):
                return
            time.sleep(0.005)
        raise TimeoutError("the explorer did not answer")

    def at(self, name):
        s = self.server.session.structure
        layer, unit = s.names.unit(name, "test")
        return f"{list(s.layers).index(layer)},{unit}"

    def part(self, at, state):
        (found,) = self.all(f'[data-at="{at}"][data-state="{state}"]')
        return found

    def click(self, at, state, *modifiers):
        chain = self.actions().move_to_element(self.part(at, state))
        for key in modifiers:
            chain.key_down(key)
        chain.click()
        for key in modifiers:
            chain.key_up(key)
        chain.perform()

    def button(self, text):
        self.js(
            "[...document.querySelectorAll('button')].find(b => b.textContent === arguments[0])"
            ".click()",
            text,
        )

    def press(self, *keys):
        self.actions().send_keys(*keys).perform()

    def focus(self, at, state):
        self.js("arguments[0].focus()", self.part(at, state))

    def shown(self):
        """(place, state) -> the probability that is drawn."""
        found = self.js(
            "return [...document.querySelectorAll('[data-state]')].map(e => [e.dataset.at, "
            "e.dataset.state, e.dataset.p, (e.querySelector('.pgm-bar')?.getAttribute('width') ?? "
            "'') || e.querySelector('.pgm-ink')?.getAttribute('fill-opacity')])"
        )
        full = {True: 72.0, False: 1.0}
        bars = bool(self.all(".pgm-bar"))
        return {
            (at, int(state)): (float(p), float(drawn) / full[bars and drawn != p])
            for at, state, p, drawn in found
            if p
        }

    @property
    def error(self):
        (found,) = self.all(".pgm-error")
        return found.text

    def check(self, expected):
        """The numbers shown are those of a result."""
        if isinstance(expected, str):
            assert self.error == expected and self.shown() == {}
            return
        truth, shown = numbers(expected, self.server.session.model), self.shown()
        assert self.error == "" and shown
        for (at, state), (p, drawn) in shown.items():
            assert p == pytest.approx(truth[at][state], abs=1e-12)
            assert drawn == pytest.approx(p, abs=1e-6)


def asia():
    return pgm.read(pgm.datasets.asia())


def test_a_click_changes_the_numbers_to_those_of_infer(page):
    shown = page(asia())
    shown.check(pgm.infer(asia()))
    shown.click(shown.at("xray"), 0)
    shown.wait()
    r = pgm.infer(asia(), {"xray": "yes"}, want=("marginals", "log_prob"))
    shown.check(r)
    text = shown.part(shown.at("lung"), 0).text
    assert f"{100 * r.marginal('lung')['yes']:.1f} %" in text
    (foot,) = shown.all(".pgm-foot")
    assert "exact" in foot.text and f"log p(evidence) = {r.log_prob[0]:.6g}" in foot.text
    assert str(r.plan) in foot.text and r.status.value in foot.text
    shown.click(shown.at("xray"), 0)
    shown.wait()
    shown.check(pgm.infer(asia()))


def test_shift_click_intervenes(page):
    shown = page(asia())
    shown.click(shown.at("lung"), 0, shown.keys.SHIFT)
    shown.wait()
    shown.check(pgm.infer(asia(), do={"lung": "yes"}))


def test_dragging_a_bar_is_soft_evidence(page):
    shown = page(asia(), {"dysp": "yes"})
    at = shown.at("bronc")
    bar = shown.part(at, 0).find_element("css selector", ".pgm-bar")
    scale = shown.js("return document.querySelector('.pgm-drawing').getScreenCTM().a")
    before = shown.shown()[at, 0][0]
    chain = shown.actions().move_to_element_with_offset(bar, 0, 0).click_and_hold()
    # The bar ends 36 of 72 pixels from where it begins; its middle is at half its length.
    chain.move_by_offset(round(scale * (36 - 72 * before / 2)), 0).release().perform()
    shown.wait()
    assert shown.shown()[at, 0][0] == pytest.approx(0.5, abs=0.03)
    code = shown.all(".pgm-code")[0].text
    assert "soft=pgm.likelihood({'bronc': [" in code
    shown.check(eval(code, {"pgm": pgm, "model": asia()}))


def test_the_keyboard_does_what_the_mouse_does(page):
    """From the search box by Tab to the variable, and by keys to each kind of evidence."""
    shown = page(asia())
    keys, at = shown.keys, shown.at("lung")
    shown.all("input[type=search]")[0].click()
    for _ in range(20):
        shown.press(keys.TAB)
        if shown.js("return document.activeElement.dataset.at") == at:
            break
    shown.press(keys.ENTER)
    shown.wait()
    shown.check(pgm.infer(asia(), {"lung": "yes"}))
    shown.press(keys.ARROW_DOWN, keys.ENTER)
    shown.wait()
    shown.check(pgm.infer(asia(), {"lung": "no"}))
    shown.press(keys.DELETE)
    shown.wait()
    shown.check(pgm.infer(asia()))
    shown.actions().key_down(keys.SHIFT).send_keys(keys.ENTER).key_up(keys.SHIFT).perform()
    shown.wait()
    shown.check(pgm.infer(asia(), do={"lung": "no"}))
    shown.actions().key_down(keys.CONTROL).send_keys("z").key_up(keys.CONTROL).perform()
    shown.wait()
    shown.check(pgm.infer(asia()))
    shown.press("+", "+")
    shown.wait()
    before = pgm.infer(asia()).marginal("lung")["no"]
    p = shown.shown()[at, 1][0]
    assert np.log(p / (1 - p)) - np.log(before / (1 - before)) == pytest.approx(1, abs=1e-3)
    shown.actions().key_down(keys.CONTROL).send_keys("zz").key_up(keys.CONTROL).perform()
    shown.actions().key_down(keys.CONTROL).send_keys("y").key_up(keys.CONTROL).perform()
    shown.wait()
    # The focus stays where it was through all answers.
    assert shown.js("return document.activeElement.dataset.at") == at


def test_every_state_has_a_role_and_a_name_for_screen_readers(page):
    shown = page(asia(), {"smoke": "yes"})
    states = shown.all("[data-state]")
    assert len(states) == 16
    for element in states:
        assert element.get_attribute("role") == "button"
        pressed = element.get_attribute("aria-pressed") == "true"
        assert pressed == (element.get_attribute("aria-label").startswith("smoke: yes"))
    label = shown.part(shown.at("smoke"), 0).get_attribute("aria-label")
    assert label == "smoke: yes, 100.0 %, without evidence 50.0 %, observed"
    # One stop of Tab for each variable, and a live region for the answer.
    assert len(shown.all('[data-state][tabindex="0"]')) == 8
    assert shown.all('.pgm-foot[role="status"][aria-live="polite"]')
    controls = [x for x in shown.all("button, input, [role=button]") if x.is_displayed()]
    names = [one.accessible_name for one in controls]
    assert len(names) > 16 and all(names)


def test_a_stroke_paints_a_picture(page):
    model = pgm.rbm(16, 4, rng=0)
    shown = page(model)
    chain = shown.actions().move_to_element(shown.part("0,0", 1)).click_and_hold()
    for unit in (1, 2, 6):
        chain.move_to_element(shown.part(f"0,{unit}", 1))
    chain.release().perform()
    shown.wait()
    values = np.full(16, np.nan)
    values[[0, 1, 2, 6]] = 1
    shown.check(pgm.infer(model, {"v": values}))
    for brush, state in (("off", 0.0), ("unobserved", np.nan)):
        shown.all(".pgm-brushes label")[("on", "off", "unobserved").index(brush)].click()
        shown.click("0,1", 1)
        shown.wait()
        values[1] = state
        shown.check(pgm.infer(model, {"v": values}))
    shown.focus("0,2", 1)
    shown.press(shown.keys.ARROW_DOWN, "0", shown.keys.ARROW_RIGHT, "1")
    shown.wait()
    values[[6, 7]] = 0, 1
    shown.check(pgm.infer(model, {"v": values}))


def lattice(side):
    b = pgm.GraphBuilder()
    s = b.variable("s", states=("down", "up"), shape=(side, side))
    bond = np.exp(0.4407 * np.array([[1, -1], [-1, 1]]))
    b.table((s[1:], s[:-1]), bond)
    b.table((s[:, 1:], s[:, :-1]), bond)
    return b.build()


def test_brushes_have_the_names_of_the_states(page):
    brushes = [one.text for one in page(lattice(3)).all(".pgm-brushes label")]
    assert brushes == ["up", "down", "unobserved"]
    assert page(pgm.rbm(4, 2, rng=0)).all(".pgm-brushes label")[0].text == "on"


def test_estimates_are_shown_with_their_errors(page):
    b = pgm.GraphBuilder()
    s = b.variable("s", states=("down", "up"), shape=(32, 32))
    c = b.variable("c", states=("no", "yes"))
    bond = np.exp(0.3 * np.array([[1, -1], [-1, 1]]))
    b.table((s[1:], s[:-1]), bond)
    b.table((s[:, 1:], s[:, :-1]), bond)
    # c is joined to a whole column, so that the lattice is not planar.
    b.table((s[:, 5], c), np.exp(0.01 * np.array([[1, -1], [-1, 1]])))
    shown = page(b.build())
    assert shown.server.session.answer().result.kind == "estimate"
    assert shown.js("return document.querySelectorAll('.pgm-spread').length") == 2
    assert " ± " in shown.part(shown.at("c"), 1).get_attribute("aria-label")


def test_a_name_that_is_no_variable_is_said(page):
    shown = page(asia())
    box = shown.all("input[type=search]")[0]
    box.send_keys("lungg", shown.keys.ENTER)
    assert 'there is no variable "lungg"' in shown.error


def test_errors_are_said_in_words_and_undone(page):
    shown = page(asia(), {"lung": "yes"})
    shown.click(shown.at("either"), 1)
    shown.wait()
    assert "probability zero" in shown.error and shown.shown() == {}
    shown.button("Undo")
    shown.wait()
    shown.check(pgm.infer(asia(), {"lung": "yes"}))


def test_reasons_are_listed_and_follow_the_evidence(page):
    shown = page(asia(), {"xray": "yes"})
    shown.all(".pgm-title")[[t.text for t in shown.all(".pgm-title")].index("lung")].click()
    shown.wait()
    assert "Why lung?" in shown.all(".pgm-why")[0].text
    assert "+2.80" in shown.all(".pgm-why tbody")[0].text
    shown.click(shown.at("dysp"), 0)
    shown.wait()
    found = pgm.impact(asia(), {"xray": "yes", "dysp": "yes"}, "lung")
    text = shown.all(".pgm-why tbody")[0].text
    for one in found.contributions:
        assert f"{one.removed['yes']:+.2f}" in text and f"{one.alone['yes']:+.2f}" in text


@pytest.mark.parametrize("name", ["asia", "hidden Markov model", "restricted Boltzmann machine"])
def test_a_hundred_random_sequences_of_clicks_end_as_a_fresh_infer(page, name):
    """Every second sequence waits for no answer between its clicks."""
    make = MODELS[name]
    shown = page(make())
    directed = shown.server.session.structure.normalized
    clicks = Clicks(shown.server.session.model, seed=11)
    for sequence in range(100):
        for _ in range(4):
            action = clicks.next(directed)
            kind = action["kind"]
            if kind in ("undo", "redo", "clear"):
                shown.button(kind.title())
            elif kind == "release":
                shown.js(
                    "arguments[0].focus(); arguments[0].dispatchEvent(new KeyboardEvent('keydown', "
                    "{key: 'Delete', bubbles: true, cancelable: true}))",
                    shown.all(f'[data-at="{action["at"][0]}"]')[0],
                )
            else:
                (at,), state = action["at"], action["state"]
                if shown.all(f'.pgm-picture [data-at="{at}"]'):
                    shown.js(
                        "document.querySelectorAll('.pgm-brushes input')[arguments[0]].click()",
                        1 - state,
                    )
                    state = 1
                shown.click(at, state, *([shown.keys.SHIFT] if action["do"] else []))
            if sequence % 2:
                shown.wait()
        shown.wait()
        shown.check(clicks.fresh(make))


def test_the_widget_shows_the_same_by_messages(page):
    """The module that notebooks load, with a stand-in for their connection."""
    shown = page(asia())
    shown.js(
        """
        const done = import("./explorer.js").then(({ default: { render } }) => {
          const el = document.createElement("div");
          el.id = "widget";
          document.body.replaceChildren(el);
          let receive;
          const model = {
            on: (event, callback) => { receive = callback; },
            off: () => { receive = null; },
            send: (message) => fetch("ask", {
              method: "POST", headers: { "Content-Type": "application/json" },
              body: JSON.stringify(message),
            }).then((reply) => reply.json()).then((reply) => receive(reply, [])),
          };
          window.ended = render({ model, el });
        });
        return done;
        """
    )
    for _ in range(200):
        if shown.all("#widget .pgm-foot b"):
            break
        time.sleep(0.02)
    shown.click(shown.at("smoke"), 0)
    shown.wait()
    shown.check(pgm.infer(asia(), {"smoke": "yes"}))
    shown.js("window.ended()")
    assert shown.all("#widget *") == []


@pytest.mark.parametrize("width", [400, 900, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_every_width_in_light_and_dark(page, chromium, width, scheme):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    shown = page(asia(), {"xray": "yes"})
    assert shown.js("return document.documentElement.scrollWidth") <= width
    paper = shown.js(
        "return getComputedStyle(document.querySelector('.pgm-explorer')).backgroundColor"
    )
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 30)"}[scheme]
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
