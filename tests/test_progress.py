"""What ``verbose=1`` shows."""

import re
import sys
from types import SimpleNamespace

from numba import njit

from s3vm._utils import compiled, progress
from s3vm._utils.progress import Bar, ProgressBar


def test_a_bar_with_losses_and_a_summary(capsys):
    bar = ProgressBar(1)
    for done in range(11, 21):
        bar(done, 20, {"objective": 3.0, "labeled_loss": 0.5, "step": 0.1})
    bar.close("1 GiB on the GPU")
    shown = capsys.readouterr().err
    assert re.search(r"\] 11 of 20, .* left, loss 0.5 labeled", shown)
    assert re.search(
        r"done after 20 iterations in \d+\.\d s, objective 3, loss 0.5 labeled, 1 GiB on the GPU\n$", shown
    )
    assert "step" not in shown


def test_a_total_that_is_not_known(capsys):
    bar = ProgressBar(True, unit="rows read")
    bar(1234, None, {})
    bar.close()
    assert "1,234 rows read" in capsys.readouterr().err


def test_nothing_was_done(capsys):
    ProgressBar(1).close()
    assert capsys.readouterr().err == "nothing was done\n"


def test_nothing_is_shown_without_verbose_or_with_a_function(capsys):
    calls = []
    for verbose in (0, False, lambda *call: calls.append(call)):
        bar = ProgressBar(verbose)
        bar(1, 2, {"objective": 3.0})
        bar.close()
    assert calls == [(1, 2, {"objective": 3.0})]
    assert capsys.readouterr().err == ""


def test_a_long_compilation_is_said(capsys, monkeypatch):
    said = []

    @njit
    def doubled(x):
        return 2 * x

    assert compiled.compile_clock is progress.compile_clock
    with Bar("rows", "training") as bar:
        for limit in (1000.0, 0.0):
            monkeypatch.setattr(progress, "_LONG_COMPILATION", limit)
            monkeypatch.setattr(
                compiled._Listener, "on_start", lambda *_: (progress.compile_clock.start(), bar.refresh())
            )
            assert doubled(limit + 1j * limit if limit else 1) is not None  # another type, compiled again
            bar.refresh()
            said.append(capsys.readouterr().err)
    assert "compiling, once after installation: 00:0" not in said[0]
    assert "compiling, once after installation: 00:0" in said[1]
    assert said[1].rpartition("\r")[2].startswith("training 00:0"), "then the bar is as before"


def test_progress_in_a_notebook_is_one_line(capsys, monkeypatch):
    """Each write to standard error would be a block of its own once the notebook is saved."""
    shown = []

    class Display:
        def update(self, data, raw):
            shown.append(data["text/plain"])

    ipython = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=lambda data, **settings: Display()))
    bar = ProgressBar(1)
    for done in range(1, 5):
        bar(done, 4, {"objective": 3.0})
    bar.close()
    assert any(line.startswith("[") for line in shown)
    assert re.fullmatch(r"done after 4 iterations in \d+\.\d s, objective 3", shown[-1])
    assert not any("\n" in line or "\r" in line for line in shown)
    assert capsys.readouterr().err == ""
