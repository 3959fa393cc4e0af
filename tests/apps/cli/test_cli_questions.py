"""Interventions, soft evidence, methods and JSON on the command line."""

import json
import math
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from damaged import answered
from extras import extra
from loops import one_test_over
from typer.testing import CliRunner

import pgmengine as pgm
from pgmengine.apps.cli import app, main
from pgmengine.apps.cli.answers import json_text
from pgmengine.apps.reading.calls import NEGATIVES, OPTIMIZERS, known_classes, methods, read_call
from pgmengine.apps.reading.soft_words import read_soft
from pgmengine.infer.methods import __all__ as METHODS

ASIA = str(pgm.datasets.asia())


@pytest.fixture(scope="module")
def net():
    return pgm.read(ASIA)


def asked(*words):
    """The JSON that a command prints; other constants than those of JSON fail."""
    found = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert found.exit_code == 0, found.exception
    return json.loads(found.stdout, parse_constant=pytest.fail)


def same(found, truth):
    for name in truth.target.model.variables:
        assert found["marginals"][name] == pytest.approx(truth.marginal(name), abs=1e-12)


def test_interventions_and_soft_evidence(net):
    found = asked("infer", ASIA, "--do", "smoke=yes", "--likelihood", "xray=yes:0.9,no:0.2")
    soft = pgm.likelihood({"xray": {"yes": 0.9, "no": 0.2}})
    same(found, pgm.infer(net, do={"smoke": "yes"}, soft=soft))
    words = ("--soft", "lung=yes:+1.5,no:0", "--soft", "tub=yes:-inf,no:+0.5")
    found = asked("infer", ASIA, *words, "--evidence", "dysp=yes")
    soft = {"lung": {"yes": 1.5, "no": 0.0}, "tub": {"yes": -np.inf, "no": 0.5}}
    same(found, pgm.infer(net, {"dysp": "yes"}, soft=soft))
    assert pgm.infer(net).marginal("lung") != pytest.approx(found["marginals"]["lung"])


@one_test_over(
    ("words", "match"),
    [
        (["--soft", "lung=yes:1.5,no:0"], "'1.5' is no log weight.*use --likelihood 'lung=yes:1.5"),
        (["--soft", "lung=yes:+1.5"], "there is no number for 'no'"),
        (["--soft", "lung=yes:+x,no:0"], "'[+]x' is no log weight"),
        (["--soft", "lung"], "expected NAME=STATE:NUMBER"),
        (["--soft", "lung=yes"], "'yes' is no state with its number"),
        (["--soft", "lung=yes:+1,yes:+2"], "state 'yes' is named twice"),
        (["--soft", "lung=yes:+1,maybe:+2"], "'maybe' is no state, expected one of 'yes', 'no'"),
        (["--soft", "lungs=yes:+1,no:0"], "'lungs' is no variable; did you mean lung"),
        (["--likelihood", "lung=yes:-1,no:1"], "'-1' is no likelihood.*are given by --soft"),
        (["--likelihood", "lung=yes:+1,no:1"], "'[+]1' is no likelihood"),
        (["--likelihood", "lung=yes:0,no:0"], "every state is excluded"),
        (["--likelihood", "lung=yes:nan,no:0"], "'nan' is no likelihood"),
        (
            ["--likelihood", "lung=yes:1,no:2", "--soft", "lung=yes:+1,no:0"],
            "'lung' has been given before",
        ),
        (["--do", "smoke"], "do 'smoke': expected NAME=STATE, such as smoke=yes"),
        (["--do", "smoke=maybe"], "do 'smoke=maybe': 'maybe' is no state"),
        (["--do", "smoke=yes", "--do", "smoke=no"], "'smoke' has been given before"),
        (["--method", "MCMCC"], "expected one of .*MCMC.*did you mean MCMC"),
        (["--method", "MCMC(draws=)"], "expected a name, with settings as MCMC"),
        (["--method", "MCMC(steps=3)"], "'steps'; its settings are kernel, .*draws"),
        (["--evidence", "xray"], "'xray': expected NAME=STATE, such as .*, or a file that exists"),
        (["--evidence", ""], "'': expected NAME=STATE"),
        (["--seed", "-1"], "--seed.*, not '-1'"),
        (["--seed=-1"], "--seed.*, not '-1'"),
        (["--seed", "5", "--seed=-2"], "--seed.*, not '-2'"),
        (["--method", "MCMC(draws=-3)"], "draws"),
        (["--method", "MCMC(draws=__import__('os'))"], "is no setting"),
        (["--method", "EM()"], "expected one of"),
        (["--method", "load('x')"], "expected one of"),
        (["--json", "--out", "o.json"], "give one of them"),
    ],
)
def test_mistakes_are_one_line(words, match):
    code, err = answered(["infer", ASIA, *words])
    assert code == 2 and err.count("\n") == 1 and re.search(match, err), err


def test_an_unknown_command_is_answered_with_the_commands():
    code, err = answered(["infre"])
    assert code == 2 and "The commands are info, explain, infer" in err


def test_pairs_of_a_network_of_tables_say_that_there_are_none():
    found = CliRunner().invoke(app, ["infer", ASIA, "--want", "pairs"])
    assert found.exit_code == 0 and "pairs: none, since there are no couplings" in found.stdout
    assert "pairs: none" in str(pgm.infer(pgm.read(ASIA), want=("pairs",)))
    assert "pairs: none" not in str(pgm.infer(pgm.rbm(3, 2, rng=0), want=("pairs",)))


def test_units_of_layers_take_log_weights_of_states(tmp_path):
    model = pgm.rbm(9, 4, rng=0)
    pgm.save(model, tmp_path / "rbm.safetensors")
    found = asked("infer", tmp_path / "rbm.safetensors", "--soft", "v[0]=1:+1,0:-0.5")
    truth = pgm.infer(model, soft={("v", 0): 1.5})
    np.testing.assert_allclose(found["means"]["v"], truth.mean["v"], atol=1e-12)


def test_states_with_commas_and_colons_have_weights():
    b = pgm.GraphBuilder()
    b.variable("x=y", states=("a, b", "c:1", "d"))
    b.conditional("x=y", (), [0.2, 0.3, 0.5])
    found = read_soft(b.build(), None, ["x=y=a, b:0.5, c:1:2e-1,d:.25"])
    assert found["x=y"].values == {"a, b": 0.5, "c:1": 0.2, "d": 0.25}


def test_methods_are_written_as_in_python(net):
    found = asked("infer", ASIA, "--method", "MCMC(draws=2000, thin=2)", "--seed", 4)
    truth = pgm.infer(net, method=pgm.MCMC(draws=2000, thin=2), rng=4)
    same(found, truth)
    assert found["kind"] == "estimate" and found["plan"]["method"] == "MCMC"
    assert found["status"]["good"] is truth.status.good
    assert found["warnings"] == list(truth.warnings)
    errors = dict(zip(net.variables, truth.stats["mcse"]["variables2"][0], strict=True))
    for name, error in errors.items():
        assert found["errors"][name] == pytest.approx({"yes": error, "no": error})
    lines = CliRunner().invoke(app, ["infer", ASIA, "--method", "Forward(draws=500)"]).stdout
    assert lines.startswith("estimate by Forward; ") and " ± " in lines


def test_every_method_and_trainer_can_be_written():
    known = known_classes()
    expected = {name for name in METHODS if isinstance(getattr(pgm, name), type)}
    expected = {name for name in expected if issubclass(getattr(pgm, name), pgm.Method)}
    assert expected <= {*methods()} and {*NEGATIVES, *OPTIMIZERS} <= known.keys()
    assert read_call("Centered(SGD(0.5, momentum=0.9))", "optimizer", OPTIMIZERS) == pgm.Centered(
        pgm.SGD(0.5, momentum=0.9)
    )
    assert read_call("SGD(linear_decay(0.1, 100))", "optimizer", OPTIMIZERS) == pgm.SGD(
        pgm.linear_decay(0.1, 100)
    )
    assert read_call("PCD(kernel=FlipState(), k=2)", "negative", NEGATIVES) == pgm.PCD(
        kernel=pgm.FlipState(), k=2
    )


def test_json_of_rows_modes_and_draws(net, tmp_path):
    (tmp_path / "e.csv").write_text("xray,dysp\nyes,no\n,yes\n")
    words = ("--evidence", tmp_path / "e.csv", "--want", "marginals,log_prob,mode,samples")
    found = asked("infer", ASIA, *words)
    given = {"xray": ["yes", None], "dysp": ["no", "yes"]}
    truth = pgm.infer(net, given, ("marginals", "log_prob", "mode"))
    assert found["rows"] == 2 and found["kind"] == "exact"
    assert found["log_prob"] == pytest.approx(truth.log_prob.tolist())
    for name in net.variables:
        for state, p in truth.marginal(name).items():
            assert found["marginals"][name][state] == pytest.approx(p.tolist())
        assert found["mode"][name] == truth.assignment()[name].tolist()
        assert np.shape(found["samples"][name]) == (1000, 2)


def test_json_of_layers_and_arrays(tmp_path):
    b = pgm.GraphBuilder()
    x = b.variable("x", states=("a", "b"), shape=(2, 2))
    b.conditional(x, (), [0.25, 0.75])
    b.layer("g", pgm.Gaussian(), 2, bias=[1.0, -1.0])
    pgm.save(b.build(), tmp_path / "m")
    found = asked("infer", tmp_path / "m", "--want", "marginals,log_z", "--evidence", "g=2,?")
    assert np.allclose(found["marginals"]["x"]["a"], np.full((2, 2), 0.25), rtol=1e-12)
    assert np.allclose(found["marginals"]["x"]["b"], np.full((2, 2), 0.75), rtol=1e-12)
    assert found["means"] == {"g": pytest.approx([2.0, -1.0])} and found["rows"] is None
    lines = CliRunner().invoke(app, ["infer", str(tmp_path / "m")]).stdout.splitlines()
    assert "x[0,1]: a=0.25, b=0.75" in lines and any(line.startswith("mean.g: ") for line in lines)


def test_json_has_no_numbers_that_are_not_finite():
    values = {"a": np.array([[np.nan, np.inf], [-np.inf, 1.5]]), "b": np.float32(2), 1: (True, "x")}
    found = json.loads(json_text(values), parse_constant=pytest.fail)
    assert found == {"a": [[None, "Infinity"], ["-Infinity", 1.5]], "b": 2.0, "1": [True, "x"]}
    assert float(found["a"][1][0]) == -math.inf


def test_json_of_impossible_evidence():
    words = ("--evidence", "either=no", "--evidence", "lung=yes", "--want", "log_prob")
    assert asked("infer", ASIA, *words)["log_prob"] == "-Infinity"


def test_explain_has_the_plans(net):
    found = asked("explain", ASIA, "--want", "log_prob", "--evidence", "xray=yes")
    truth = pgm.explain(net, {"xray": "yes"}, ("log_prob",))
    assert found["question"] == truth.head
    assert [p["method"] for p in found["parts"][0]["plans"]] == [p.method for p in truth.plans]
    assert found["parts"][0]["chosen"]["method"] == truth.chosen.method


def test_version_and_help():
    assert CliRunner().invoke(app, ["--version"]).stdout == f"pgmengine {pgm.__version__}\n"
    text = CliRunner().invoke(app, ["--help"], terminal_width=100).stdout
    for word in ("learn", "doctor", "--version", "--install-completion"):
        assert word in text


def run(*words, **more):
    program = [sys.executable, "-m", "pgmengine.apps.cli", *words]
    return subprocess.run(program, capture_output=True, text=True, check=False, **more)


def test_a_closed_pipe_ends_the_program_in_silence(tmp_path):
    """The reader is gone before the program prints, so that its output meets a closed pipe."""
    program = [sys.executable, "-m", "pgmengine.apps.cli", "sample", ASIA, "--draws", "20000"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        error = process.stderr.read()
    assert process.returncode == 1 and error == b""


def test_a_full_disk_is_one_line():
    with open("/dev/full", "w") as full:
        program = [sys.executable, "-m", "pgmengine.apps.cli", "infer", ASIA]
        done = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2 and done.stderr == "pgmengine: No space left on device\n"


def test_names_that_the_terminal_lacks_are_escaped(tmp_path):
    b = pgm.GraphBuilder()
    b.variable("größe", states=("klein", "groß"))
    b.conditional("größe", (), [0.5, 0.5])
    pgm.save(b.build(), tmp_path / "m")
    done = run("infer", str(tmp_path / "m"), env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and "gr\\xf6\\xdfe: klein=0.5" in done.stdout


SHELLS = {
    "bash": {"COMP_WORDS": "pgmengine\ninfer\n{0}\n--evidence\nxr", "COMP_CWORD": "4"},
    "zsh": {"_TYPER_COMPLETE_ARGS": "pgmengine infer {0} --evidence xr"},
}


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_complete_variables_with_their_states(shell, monkeypatch, capsys):
    for name, value in SHELLS[shell].items():
        monkeypatch.setenv(name, value.format(ASIA))
    assert {"xray=yes", "xray=no"} <= {*completed(shell, monkeypatch, capsys)}


def completed(shell, monkeypatch, capsys):
    """The words that the program gives to a shell."""
    monkeypatch.setenv("_PGMENGINE_COMPLETE", f"complete_{shell}")
    monkeypatch.setattr(sys, "argv", ["pgmengine"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    return re.findall(r"[\w=,-]+", capsys.readouterr().out)


@one_test_over(
    ("words", "found"),
    [
        (["infer", ASIA, "--evidence", "xray", "=", "y"], ["yes"]),
        (["infer", ASIA, "--do", "xray", "="], ["yes", "no"]),
        (["infer", ASIA, "--want", "marginals,lo"], ["marginals,log_z", "marginals,log_prob"]),
        (["infer", ASIA, "--method", "MC"], ["MCMC"]),
        (["learn", ASIA, "d.csv", "--negative", "PC"], ["PCD"]),
        (["learn", ASIA, "d.csv", "--optimizer", "EM"], ["EM"]),
        (["le"], ["learn"]),
        (["infer", "absent.bif", "--evidence", "xr"], []),
    ],
)
def test_words_of_bash_are_completed(words, found, monkeypatch, capsys):
    monkeypatch.setenv("COMP_WORDS", "\n".join(["pgmengine", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    assert completed("bash", monkeypatch, capsys) == found


@pytest.mark.parametrize(
    ("shell", "word"), [("bash", "complete -o"), ("zsh", "#compdef pgmengine")]
)
def test_the_script_of_completion_is_one_that_the_shell_reads(
    shell, word, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("_PGMENGINE_COMPLETE", f"source_{shell}")
    monkeypatch.setattr(sys, "argv", ["pgmengine"])
    with pytest.raises(SystemExit) as stop:
        main()
    script = capsys.readouterr().out
    assert not stop.value.code and word in script and f"complete_{shell}" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(script)
    done = subprocess.run([shell, "-n", str(tmp_path / "script")], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["svg", "png", "pdf"])
def test_pictures(kind, net, tmp_path):
    extra("matplotlib")
    out, table = tmp_path / f"asia.{kind}", tmp_path / "rows.csv"
    table.write_text("xray\nno\nyes\n")
    words = ("draw", ASIA, str(out), "--evidence", str(table), "--row", "1", "--do", "smoke=no")
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 0, found.exception
    assert found.stdout.splitlines() == [
        "exact by Exact; no diagnostic found a fault",
        f"wrote {out}",
    ]
    assert out.read_bytes().startswith({"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[kind])
    if kind == "svg":
        # Pictures have their texts as outlines, after a comment with the text.
        r = pgm.infer(net, {"xray": "yes"}, do={"smoke": "no"})
        shown = f"<!-- {100 * float(r.marginal('either')['yes']):.2g} % -->"
        assert shown in out.read_text() and "row 1 of 0..1" in out.read_text()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["infer", ASIA, "xray=yes"], "(xray=yes); evidence is given as --evidence NAME=STATE"),
        (["learn", "garden.csv"], "The arguments are, in this order: model, data"),
        (["draw", "asia.bif"], "The arguments are, in this order: model, out"),
    ],
)
def test_words_in_a_wrong_place_get_a_hint(words, hint, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["pgmengine", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2 and hint in capsys.readouterr().err


def test_pictures_that_cannot_be_drawn(tmp_path, monkeypatch):
    def refusal(*words):
        found = CliRunner().invoke(app, ["draw", ASIA, *map(str, words)])
        assert isinstance(found.exception, pgm.PgmError)
        return str(found.exception)

    assert "out must end in .svg, .png or .pdf" in refusal(tmp_path / "asia.gif")
    assert "there is no folder" in refusal(tmp_path / "none" / "asia.svg")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pgmengine[plots]" in refusal(tmp_path / "asia.svg")
    assert not list(tmp_path.iterdir())
