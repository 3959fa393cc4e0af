"""Choice of the enumeration walk, for tests that compare the walks."""

from pgmengine.infer.exact.enumeration import compiled_enumerator, enumerator, linear_plan


def numpy_walk_only(monkeypatch):
    # No exponent is safe for the compiled walk.
    monkeypatch.setattr(compiled_enumerator, "SAFE_EXPONENT", -1.0)
    monkeypatch.setattr(linear_plan, "MOST_ROWS", 0)


def counted_walks(monkeypatch):
    calls, made = [], enumerator.GrayWalker.walk
    monkeypatch.setattr(
        enumerator.GrayWalker,
        "walk",
        lambda self, moments: calls.append(moments) or made(self, moments),
    )
    return calls
