"""Choice of the enumerator, for tests that compare the compiled one with numpy."""

from pgmengine.infer.exact.enumeration import compiled_enumerator, enumerator, linear_plan


def compiled_enumeration_only(monkeypatch):
    """Keep no linear plan; numpy enumerates where the compiled enumerator is not safe."""
    monkeypatch.setattr(linear_plan, "MAX_PLANNED_ROWS", 0)


def numpy_enumeration_only(monkeypatch):
    compiled_enumeration_only(monkeypatch)
    # No exponent is safe for the compiled enumerator.
    monkeypatch.setattr(compiled_enumerator, "MAX_SAFE_EXPONENT", -1.0)


def counted_enumerations(monkeypatch):
    calls, made = [], enumerator.CompiledEnumerator.sums
    monkeypatch.setattr(
        enumerator.CompiledEnumerator,
        "sums",
        lambda self, moments: calls.append(moments) or made(self, moments),
    )
    return calls
