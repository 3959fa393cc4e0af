"""Choice of the enumeration walk, for tests that compare the walks."""

from pgmengine.infer.exact import gray, program, walk


def numpy_walk_only(monkeypatch):
    # No exponent is safe for the compiled walk.
    monkeypatch.setattr(gray, "SAFE_EXPONENT", -1.0)
    monkeypatch.setattr(program, "MOST_ROWS", 0)


def counted_walks(monkeypatch):
    calls, made = [], walk.GrayWalker.walk
    monkeypatch.setattr(
        walk.GrayWalker, "walk", lambda self, moments: calls.append(moments) or made(self, moments)
    )
    return calls
