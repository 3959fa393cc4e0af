"""The program `pgmengine`: errors, interruptions and closed pipes become exit statuses.

An error of the user is one line on standard error, and the exit status is 2. Ctrl-C gives 130.
A reader that closes the pipe, such as `head`, ends the program without a message.
"""

from __future__ import annotations

import os
import sys

import typer

from pgmengine.apps.cli.commands import app
from pgmengine.apps.cli.completion import whole_words_of_bash
from pgmengine.base.errors import PgmError, visible
from pgmengine.base.files import shown
from pgmengine.base.work.threads import threads

# The exit status of a wrong command or unusable input, and of Ctrl-C, as is usual for shells.
STATUS_OF_ERRORS, STATUS_INTERRUPTED = 2, 130

# The exit status if the reader of the output has closed it, as typer has it.
STATUS_OF_CLOSED_PIPES = 1


def main() -> None:
    """Run the command line; an error is one line on stderr and exit status 2, or 130 for Ctrl-C."""
    code = STATUS_OF_ERRORS
    # Names that the terminal's encoding lacks are escaped, and do not end the program.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        # Report a wrong setting of the environment before any work.
        threads()
        for word in sys.argv[1:]:
            # Errors for a file name with a null character differ among versions of Python.
            if "\0" in word:
                raise PgmError(f"argument {word!r}: has a zero byte in it")
        with whole_words_of_bash():
            ended = app(prog_name="pgmengine", standalone_mode=False)
        # What is still in a buffer may meet a closed pipe, or a full disk.
        sys.stdout.flush()
        # typer turns Ctrl-C into an exit status without a message.
        if ended != STATUS_INTERRUPTED:
            sys.exit(ended)
        code, message = STATUS_INTERRUPTED, "interrupted"
    except PgmError as error:
        message = str(error)
    except (typer.Abort, KeyboardInterrupt):
        code, message = STATUS_INTERRUPTED, "interrupted"
    except BrokenPipeError:
        _leave_output()
        sys.exit(STATUS_OF_CLOSED_PIPES)
    except OSError as error:
        place = f"{shown(error.filename)}: " if error.filename else ""
        message = f"{place}{error.strerror or error}"
        _leave_output()
    except MemoryError as error:
        message = f"more memory is needed than is free{': ' * bool(str(error))}{error}"
    except Exception as error:
        # This is an error of click about arguments. It is not recognised by its class, because
        # typer may have a copy of click of its own.
        if not hasattr(error, "format_message"):
            raise
        message = error.format_message()
        message += _given_or_known(error)
        if "unexpected extra argument" in message and "=" in message:
            message += "; evidence is given as --evidence NAME=STATE"
        if "Missing argument" in message and (asked := getattr(error, "ctx", None)) is not None:
            words = [x.name for x in asked.command.params if x.param_type_name == "argument"]
            message += f" The arguments are, in this order: {', '.join(words)}"
    print(f"pgmengine: {visible(' '.join(message.split()))}", file=sys.stderr)
    sys.exit(code)


def _given_or_known(error: Exception) -> str:
    """Return the value that an error of click is about, or the commands that there are."""
    option, context = getattr(error, "param", None), getattr(error, "ctx", None)
    names = [name for name in getattr(option, "opts", ()) if name.startswith("-")]
    # Of an option that is given twice, the last value counts.
    for word, following in reversed([*zip(sys.argv, [*sys.argv[1:], None], strict=True)]):
        name, equals, value = word.partition("=")
        if name in names and (equals or following is not None):
            return f", not {(value if equals else following)!r}"
    commands = getattr(getattr(context, "command", None), "commands", {})
    return f" The commands are {', '.join(commands)}." if "No such command" in str(error) else ""


def _leave_output() -> None:
    """Send what is left for standard output to nowhere, because Python would try again at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError:
        # A standard output without a file, as in tests, has nothing left.
        return
