"""Two real runs, the UI on their store, and a browser that looks at it.

With MSACCEL_PICTURES the runs are those of the README, 3 epochs of MNIST, and the screenshots go to that folder:

    MSACCEL_PICTURES=docs/pictures python -m pytest tests/tracking/ui -k picture
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.running import python

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PICTURES = os.environ.get("MSACCEL_PICTURES")
JOB = ["data=mnist"] if PICTURES else ["data=synthetic", "model=mlp", "train.epochs=2", "tracking.every=5"]
DIFFERS = "" if PICTURES else " epochs=2"  # in the names of the runs
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync"
MILLISECONDS = 180_000  # patience with a busy machine
SERVE = (
    "import sys; from msaccel.tracking import ui; ui._SECONDS_TO_START = 500; "
    "sys.exit(ui.serve(sys.argv[1], int(sys.argv[2])))"
)


@dataclass
class Ui:
    """The UI as its user sees it: a process and what it printed."""

    process: subprocess.Popen[str]
    port: int
    printed: list[str]

    def link(self, path: str) -> str:
        """The printed link whose address contains the path."""
        return next(word for line in self.printed for word in line.split() if path in word)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a baseline and accumulation."""
    folder = tmp_path_factory.mktemp("store")
    uri = f"sqlite:///{folder}/mlflow.db"
    places = [f"tracking.uri={uri}", f"tracking.artifacts={folder}/artifacts", f"hydra.sweep.dir={folder}/jobs"]
    ended = python("run.py", "-m", "accel=none,accum", *JOB, *places)
    assert ended.returncode == 0, ended.stderr
    return uri


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def open_ui(store: str) -> Ui:
    """Starts the UI and waits until it has printed its links."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", SERVE, store, str(port)], stdout=subprocess.PIPE, text=True)
    printed = []
    for line in process.stdout or ():
        printed.append(line)
        if "Ctrl-C" in line:
            break
    return Ui(process, port, printed)


def close_ui(ui: Ui) -> int:
    """Ends the UI as a terminal or a supervisor would; returns its exit code."""
    ui.process.send_signal(signal.SIGTERM)
    code = ui.process.wait(200)
    if ui.process.stdout:
        ui.process.stdout.close()
    return code


@pytest.fixture(scope="module")
def ui(store: str) -> Iterator[Ui]:
    opened = open_ui(store)
    yield opened
    close_ui(opened)


@pytest.fixture(scope="module")  # Playwright keeps an event loop running, which other tests may not expect
def browser() -> Iterator[Browser]:
    """The system's Chromium, without a window."""
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is None:
        pytest.skip(
            "Chromium is missing: install it with your system's package manager, for example `apt-get install chromium`"
        )
    reason = "Playwright is missing: install it with `pip install -e '.[test]' -c constraints.txt`"
    sync_api = pytest.importorskip("playwright.sync_api", reason=reason)
    sync_api.expect.set_options(timeout=MILLISECONDS)
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=[*QUIET.split(), "--no-first-run"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A fresh visitor's page, whose pictures are 1400 × 900."""
    # A little larger than the picture, into which two rows of charts then fit.
    context = browser.new_context(viewport={"width": 1556, "height": 1000}, device_scale_factor=0.9)
    page = context.new_page()
    page.set_default_timeout(MILLISECONDS)
    # MLflow greets a newcomer with a chat window over a quarter of the page.
    assistant = page.locator("[data-component-id='mlflow.assistant.chat_panel.close']")
    page.add_locator_handler(assistant, lambda close: close.click())
    yield page
    context.close()


def screenshot(page: Page, path: Path, **options: Any) -> None:
    """Playwright's, asked again where Chromium refuses it, which it does now and then on a busy machine."""
    from playwright.sync_api import Error

    for attempt in range(3):
        try:
            page.screenshot(path=path, **options)
            return
        except Error as error:
            if "Unable to capture screenshot" not in error.message or attempt == 2:
                raise
            page.wait_for_timeout(500)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Where screenshots go."""
    folder = Path(PICTURES) if PICTURES else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    return folder
