"""The command line: pgmengine info | explain | infer | sample | learn | demo | doctor.

Commands read a model and evidence from files and from their words, call the function of the package
with the same name, and print the answer or write a file.

entry     the program: errors, Ctrl-C and broken pipes as exit statuses
commands  the commands and their options
printing, as_json, files_of_answers
          answers as lines of text, as JSON and in files
learning  the command `learn`

`pgmengine.apps.reading` reads models, evidence, data and settings.
"""

from pgmengine.apps.cli.commands import app
from pgmengine.apps.cli.entry import main

__all__ = ["app", "main"]
