"""Make docs/_static/explorer.png: python docs/explorer_picture.py.

It needs selenium (extra "dev"), and Debian's packages chromium and chromium-driver.
"""

import shutil
import threading
import time
from pathlib import Path

from selenium import webdriver

import pgmengine as pgm
from pgmengine.apps.explorer.server import ExplorerServer
from pgmengine.apps.explorer.session import Session

OUT = Path(__file__).parent / "_static" / "explorer.png"
SIZE = {"width": 960, "height": 580, "deviceScaleFactor": 1.5, "mobile": False}
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")


def main() -> None:
    """Open the page of asia with evidence, ask why, and save a picture of it."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for flag in FLAGS:
        options.add_argument(flag)
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    session = Session(pgm.read(pgm.datasets.asia()), {"xray": "yes", "dysp": "yes"})
    with ExplorerServer(session) as server, webdriver.Chrome(options, service) as browser:
        threading.Thread(target=server.serve_forever).start()
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", SIZE)
        browser.get(server.address)
        time.sleep(1)
        titles = browser.find_elements("css selector", ".pgm-title")
        next(title for title in titles if title.text == "lung").click()
        time.sleep(1)
        browser.execute_script("document.activeElement.blur()")
        browser.save_screenshot(str(OUT))
        server.shutdown()


if __name__ == "__main__":
    main()
