"""The local page of the explorer: who may ask, and what the page may load."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading

import pytest
from loops import one_test_over
from typer.testing import CliRunner

import pgmengine as pgm
from pgmengine.apps.cli import app
from pgmengine.apps.explorer import command
from pgmengine.apps.explorer.server import MAX_MESSAGE_BYTES, ExplorerServer
from pgmengine.apps.explorer.session import Session


@pytest.fixture
def server():
    with ExplorerServer(Session(pgm.read(pgm.datasets.asia()))) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def request(server, method, path, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request(
        method, path, body, {name.replace("_", "-"): v for name, v in headers.items()}
    )
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def ask(server, message=None, **headers):
    body = json.dumps({"seq": 1, "actions": []} if message is None else message)
    return request(
        server,
        "POST",
        f"/{server.token}/ask",
        body,
        **{"Content-Type": "application/json", **headers},
    )


def test_the_page_and_its_files_are_sent_with_a_strict_policy(server):
    for name in ("", "explorer.js", "explorer.css", "icon.svg"):
        answer, text = request(server, "GET", f"/{server.token}/{name}")
        policy = answer.headers["Content-Security-Policy"]
        assert answer.status == 200 and text
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy and "http" not in policy and "*" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert "Access-Control-Allow-Origin" not in answer.headers
    assert request(server, "GET", f"/{server.token}/other")[0].status == 404


def test_the_address_without_its_last_slash_leads_to_the_page(server):
    for method in ("GET", "HEAD"):
        answer, text = request(server, method, f"/{server.token}")
        assert answer.status == 308 and answer.headers["Location"] == f"/{server.token}/"
        assert server.token not in text
    # Without the token nothing leads anywhere.
    assert request(server, "GET", f"/{server.token[:-1]}")[0].status == 403


def test_head_has_the_headers_of_get_without_a_body(server):
    for name, status in (("", 200), ("explorer.js", 200), ("other", 404)):
        head, nothing = request(server, "HEAD", f"/{server.token}/{name}")
        get, text = request(server, "GET", f"/{server.token}/{name}")
        assert head.status == get.status == status and text and not nothing
        assert head.headers["Content-Length"] == get.headers["Content-Length"]
    assert request(server, "HEAD", "/")[0].status == 403


def test_no_file_of_the_front_end_names_another_address(server):
    own = "http://www.w3.org/2000/svg"
    for name in ("", "explorer.js", "explorer.css", "icon.svg"):
        text = request(server, "GET", f"/{server.token}/{name}")[1].replace(own, "")
        assert not re.search(r"https?:|//[a-z]+\.|@import|url\(", text), name
        assert not re.search(r"innerHTML|eval\(|\bon\w+=|style=|<style", text), name


def test_requests_without_the_token_are_refused(server):
    wrong = "x" * len(server.token)
    paths = [
        "/",
        "/explorer.js",
        "/ask",
        f"/{wrong}/",
        f"/{wrong}/ask",
        f"/{server.token[:-1]}/",
        "//",
        f"/../{server.token}",
    ]
    for path in paths:
        for method in ("GET", "POST"):
            answer, text = request(server, method, path, "{}", Content_Type="application/json")
            assert answer.status == 403 and server.token not in text, path
    assert len(server.token) >= 32


def test_tokens_are_random():
    sessions = Session(pgm.read(pgm.datasets.asia()))
    with ExplorerServer(sessions) as one, ExplorerServer(sessions) as two:
        assert one.token != two.token


@one_test_over("host", ["evil.example", "localhost", "127.0.0.1", "127.0.0.1:1", ""])
def test_names_of_other_hosts_are_refused(server, host):
    """A page of another site may make its name mean 127.0.0.1."""
    for method, path in (("GET", ""), ("POST", "ask")):
        answer, _ = request(
            server,
            method,
            f"/{server.token}/{path}",
            "{}",
            Host=host,
            Content_Type="application/json",
        )
        assert answer.status == 403


@one_test_over(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Content-Type": "text/plain"}],
)
def test_pages_of_other_sites_may_not_ask(server, headers):
    assert ask(server, **headers)[0].status == 403
    assert ask(server, Origin=server.origin)[0].status == 200


def test_the_server_listens_on_this_machine_only(server):
    assert server.server_address[0] == "127.0.0.1" and server.address.startswith(
        "http://127.0.0.1:"
    )
    others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in {*others, "127.0.0.2"} - {"127.0.0.1"}:
        with pytest.raises(OSError), socket.create_connection((address, server.server_port), 2):
            pass


def test_messages_are_answered_as_the_session_does(server):
    answer, text = ask(server, {"seq": 9, "hello": True, "actions": []})
    assert answer.status == 200 and json.loads(text)["seq"] == 9
    fresh = Session(server.session.model).reply({"seq": 9, "hello": True, "actions": []})
    assert json.loads(text) == json.loads(json.dumps(fresh))


@one_test_over("body", ["", "{", "[1]", "null", "\xff", "[" * 100_000])
def test_messages_that_are_no_object_are_refused(server, body):
    answer, _ = request(
        server,
        "POST",
        f"/{server.token}/ask",
        body.encode("latin1"),
        Content_Type="application/json",
    )
    assert answer.status == 400
    assert ask(server)[0].status == 200


def test_long_messages_are_refused_before_they_are_read(server):
    answer, _ = request(
        server,
        "POST",
        f"/{server.token}/ask",
        "{}",
        Content_Type="application/json",
        Content_Length=str(MAX_MESSAGE_BYTES + 1),
    )
    assert answer.status == 413


def test_requests_at_the_same_time_are_answered_one_by_one(server):
    """Each reply has its own number and complete evidence."""
    replies = {}

    def send(i):
        action = {"kind": "set", "at": [f"0,{i}"], "state": 0, "do": False, "toggle": False}
        replies[i] = json.loads(ask(server, {"seq": i, "actions": [action]})[1])

    threads = [threading.Thread(target=send, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(replies[i]["seq"] == i for i in range(8))
    assert sorted(len(replies[i]["given"]) for i in range(8)) == list(range(1, 9))


# Ctrl-C is ignored by default where the tests run in the background of a shell.
HEARS_CTRL_C = (
    "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "runpy.run_module('pgmengine.apps.cli', run_name='__main__', alter_sys=True)"
)


def test_the_command_prints_its_address_first_and_ends_with_ctrl_c():
    command = [sys.executable, "-c", HEARS_CTRL_C, "explore", str(pgm.datasets.asia())]
    with subprocess.Popen(
        [*command, "--no-browser"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"BROWSER": "false"},
    ) as process:
        try:
            first = process.stdout.readline()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32,}/\n", first)
            port, token = re.search(r":(\d+)/([\w-]+)/", first).groups()
            connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=20)
            connection.request("GET", f"/{token}/")
            assert connection.getresponse().status == 200
            connection.close()
            process.send_signal(signal.SIGINT)
            out, error = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0 and error == "" and token not in out


def test_a_port_that_is_taken_is_an_error_of_one_line(server):
    command = [sys.executable, "-m", "pgmengine.apps.cli", "explore", str(pgm.datasets.asia())]
    command += ["--no-browser", "--port", str(server.server_port)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert found.returncode == 2 and found.stdout == ""
    assert re.fullmatch(r"pgmengine: .*in use.*\n", found.stderr)


def test_the_command_begins_with_evidence(monkeypatch):
    begun = []

    class Server(ExplorerServer):
        def serve_forever(self, poll_interval=0.5):
            begun.append(self.session.code())

    monkeypatch.setattr(command, "ExplorerServer", Server)
    words = ["explore", str(pgm.datasets.asia()), "--no-browser"]
    words += ["--evidence", "xray=yes", "--evidence", "dysp=no"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert "'xray': 'yes', 'dysp': 'no'" in begun[0].replace('"', "'")
    found = CliRunner().invoke(app, [*words, "--evidence", "xray=maybe"])
    assert isinstance(found.exception, pgm.PgmError) and len(begun) == 1
