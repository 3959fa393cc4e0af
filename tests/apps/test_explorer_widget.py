"""The widget of the explorer: its messages, without a notebook."""

import json

import pytest
from extras import extra

import pgmengine as pgm


@pytest.fixture
def widget(monkeypatch):
    extra("anywidget")
    found = pgm.explore(pgm.read(pgm.datasets.asia()), {"xray": "yes"})
    found.sent = []
    monkeypatch.setattr(found, "send", lambda content, buffers=None: found.sent.append(content))
    return found


def test_messages_of_the_front_end_are_answered(widget):
    action = {"kind": "set", "at": ["0,0"], "state": 1, "do": False, "toggle": True}
    widget._handle_custom_msg({"seq": 3, "hello": True, "actions": [action]}, [])
    (reply,) = widget.sent
    assert reply["seq"] == 3 and "scene" in reply
    assert reply["code"] == widget.session.code()
    assert [one["text"] for one in reply["given"]] == ["xray = yes", "asia = no"]
    json.dumps(reply, allow_nan=False)


def test_the_front_end_travels_with_the_widget(widget):
    assert "export default { render }" in str(widget._esm)
    assert ".pgm-explorer" in str(widget._css)


def test_a_model_that_is_none_is_refused():
    extra("anywidget")
    with pytest.raises(pgm.PgmError, match="model must be a Model or a Fit"):
        pgm.explore({"a": 1})
