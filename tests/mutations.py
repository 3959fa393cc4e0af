"""Mutations of files and texts, at random: of bits, of lengths, and by the grammar."""

import copy
import json

import numpy as np

ODD = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    3,
    2**31,
    2**63,
    -(2**63),
    10**300,
    10**400,
    0.5,
    -0.0,
    1e308,
    1e-320,
    float("nan"),
    float("inf"),
    -float("inf"),
    "",
    "v",
    "h",
    "\0",
    "\ud800",
    "[/b]",
    "a/b",
    "Binary",
    "Categorical",
    "MultiValued",
    "Input",
    "NoisyOr",
    "Gaussian",
    "Spin",
    [],
    {},
    [[]],
    [1, [2]],
    [None],
    [0, 1],
    {"a": 1},
    "x" * 300,
    [[0.0, 1.0]],
    ["on", "off"],
]
KEYS = [
    "name",
    "unit",
    "size",
    "bias",
    "labels",
    "states",
    "k",
    "s",
    "sigma",
    "couple",
    "cause",
    "weight",
    "layers",
    "couplings",
    "weights",
    "mark",
    "notes",
    "rng",
    "by",
    "history",
    "bit_generator",
    "state",
]
DTYPES = [
    np.float64,
    np.float32,
    np.float16,
    np.int64,
    np.int32,
    np.int8,
    np.uint64,
    np.uint8,
    bool,
]


def pick(rng, items):
    return items[int(rng.integers(len(items)))]


def flipped(content, rng):
    """Flip one to eight bits."""
    out = bytearray(content)
    for bit in rng.integers(0, 8 * len(out), int(rng.integers(1, 9))):
        out[bit // 8] ^= 1 << int(bit % 8)
    return bytes(out)


def cut(content, rng):
    """Leave out a part: the end, the beginning or the middle."""
    i, j = sorted(rng.integers(0, len(content) + 1, 2))
    return pick(rng, [content[:i], content[j:], content[:i] + content[j:]])


def spliced(content, rng):
    """Repeat a part elsewhere, or insert bytes that have a meaning in the format."""
    i, j, k = rng.integers(0, len(content) + 1, 3)
    token = pick(
        rng,
        [
            content[min(i, j) : max(i, j)],
            b"{",
            b"}",
            b"[",
            b"]",
            b'"',
            b",",
            b":",
            b"=",
            b"\n",
            b"-",
            b"9" * 30,
            b"1e999",
            b"\0",
            b"\xff",
            b"nan",
            b"null",
            b"true",
            b"[" * 3000,
        ],
    )
    return content[:k] + token + content[k:]


def raw(content, rng):
    """Any of the mutations that know no grammar."""
    return pick(rng, [flipped, cut, spliced])(content, rng)


def places(value, path=()):
    """All places in nested lists and mappings."""
    yield path
    parts = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, part in parts:
        yield from places(part, (*path, key))


def tree(value, rng):
    """A nested value with one to three places changed, taken out, doubled or renamed."""
    value = copy.deepcopy(value)
    for _ in range(int(rng.integers(1, 4))):
        path = pick(rng, list(places(value)))
        if not path:
            if rng.random() < 0.1:
                return copy.deepcopy(pick(rng, ODD))
            continue
        *above, last = path
        holder = value
        for key in above:
            holder = holder[key]
        act = int(rng.integers(5))
        if act == 0:
            del holder[last]
        elif act == 1 and isinstance(holder, dict):
            holder[pick(rng, KEYS)] = holder.pop(last)
        elif act == 1:
            holder.insert(last, copy.deepcopy(holder[last]))
        elif act == 2 and isinstance(holder, dict):
            holder[pick(rng, KEYS)] = copy.deepcopy(pick(rng, ODD))
        else:
            holder[last] = copy.deepcopy(pick(rng, ODD))
        if not isinstance(value, (dict, list)):
            return value
    return value


def array(value, rng):
    """An array of another dtype, shape or content."""
    act = int(rng.integers(6))
    with np.errstate(all="ignore"):
        if act == 0:
            return np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        if act == 1:
            return np.nan_to_num(value).astype(pick(rng, DTYPES))
        if act == 2:
            return np.resize(value, tuple(rng.integers(0, 5, int(rng.integers(0, 4)))))
        if act == 3:
            return np.array(pick(rng, [0, -1, 2**62, 1e300, np.nan, np.inf]))
        out = np.array(value).reshape(-1)
        if len(out):
            odd = (
                [0, -1, 1, 2, 100]
                if out.dtype.kind in "ui"
                else [0, -1, 2, 0.3, 1e30, 1e300, np.nan, np.inf]
            )
            out[int(rng.integers(len(out)))] = np.array(pick(rng, odd)).astype(out.dtype)
        return out.reshape(np.shape(value))


def tensors(found, rng):
    """Arrays by name of which some are changed, taken out, renamed or exchanged."""
    out = dict(found)
    for _ in range(int(rng.integers(1, 3))):
        if not out:
            break
        name, other, act = pick(rng, list(out)), pick(rng, list(found)), int(rng.integers(8))
        if act == 0:
            del out[name]
        elif act == 1:
            out[pick(rng, ["a", "v.bias", name + "/data", name + "/indptr", "params/" + name])] = (
                out.pop(name)
            )
        elif act == 2:
            out[name] = found[other]
        else:
            out[name] = array(out[name], rng)
    return out


def json_of(value):
    """Convert to text, with a replacement for values that JSON does not have."""
    return json.dumps(value)


def toml_of(value):
    """Write a mutated declaration, which may be invalid, as TOML."""
    lines = []
    tables = []
    for key, part in value.items() if isinstance(value, dict) else [("layers", value)]:
        if isinstance(part, list) and part and all(isinstance(x, dict) for x in part):
            tables += [(key, table) for table in part]
        else:
            lines.append(f"{json.dumps(key)} = {inline(part)}")
    for key, table in tables:
        lines += [
            f"[[{json.dumps(key)}]]",
            *(f"{json.dumps(k)} = {inline(v)}" for k, v in table.items()),
        ]
    return "\n".join(lines)


def inline(value):
    """A TOML value on one line; what TOML does not know is left as JSON has it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {inline(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    if isinstance(value, float) and value != value:
        return "nan"
    return json.dumps(value).replace("Infinity", "inf")


def replaced(text, old, new):
    """The text with one part replaced, which it has exactly once."""
    assert text.count(old) == 1, old
    return text.replace(old, new)
