"""Progress bars: on a terminal only, and after a while."""

import io
import sys

import pytest

from pgmengine.base.work import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("patience", "shown"), [(-1.0, True), (60.0, False)])
def test_a_bar_appears_on_a_terminal_for_long_work(patience, shown, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(progress, "SECONDS_BEFORE_BAR", patience)
    assert list(progress.track(range(5), "sweeps", show=True)) == [0, 1, 2, 3, 4]
    assert ("sweeps" in sys.stderr.getvalue()) == shown


def test_nothing_is_shown_without_a_terminal_or_unasked(monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BEFORE_BAR", -1.0)
    for stream, show in ((io.StringIO(), True), (Terminal(), None)):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress.showing(False):
            assert list(progress.track("abc", "letters", show=show)) == ["a", "b", "c"]
        assert stream.getvalue() == ""
