"""Loops over cases as one test.

A table of cases that take milliseconds (wrong texts and their messages, files of the repository,
public names) is one item of the suite: an item costs more than such a case, in every worker. All
cases run, and the report lists every one that fails.
"""

import functools
import inspect

import pytest


def one_test_over(names, cases, ids=repr):
    """Run a test for each of its cases, and fail with all the cases that fail.

    It is used like `pytest.mark.parametrize`. `cases` may be a function without arguments, so that
    what takes time is read when the test runs. `ids` names a case in the report, by its first
    value. Fixtures serve all the cases together, but `tmp_path` is a folder of each case.
    """
    names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)

    def decorate(test):
        @functools.wraps(test)
        def loop(**fixtures):
            failures, count = [], 0
            for count, case in enumerate(cases() if callable(cases) else cases, 1):
                values = [case] if len(names) == 1 else case
                try:
                    test(
                        **fixtures | own_folder(fixtures, count),
                        **dict(zip(names, values, strict=True)),
                    )
                except (Exception, BaseExceptionGroup, pytest.fail.Exception) as error:
                    error.add_note(f"in the case {ids(values[0])} (number {count})")
                    failures.append(error)
            assert count, "there are no cases"
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {count} cases failed", failures)

        left = [p for n, p in inspect.signature(test).parameters.items() if n not in names]
        loop.__signature__ = inspect.Signature(left)
        return loop

    return decorate


def own_folder(fixtures, number):
    """A folder in place of `tmp_path`, where the test asks for one."""
    if "tmp_path" not in fixtures:
        return {}
    (folder := fixtures["tmp_path"] / str(number)).mkdir(exist_ok=True)
    return {"tmp_path": folder}


def in_blocks(name, count, size):
    """Run a test for the numbers below `count`, in items of `size` numbers each.

    The quick lane takes a few of these items (lanes.py).
    """

    def decorate(test):
        def block(first, **others):
            numbers = range(first, min(first + size, count))
            one_test_over(name, numbers)(test)(**others)

        parameters = inspect.signature(test).parameters.values()
        renamed = [p.replace(name="first") if p.name == name else p for p in parameters]
        functools.update_wrapper(block, test).__signature__ = inspect.Signature(renamed)
        return pytest.mark.parametrize("first", range(0, count, size))(block)

    return decorate
