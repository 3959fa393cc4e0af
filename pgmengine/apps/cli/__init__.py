"""The command line: pgmengine info | explain | infer | sample | learn | demo | doctor.

Commands read a model and evidence from files and from their words, call the function of the package
with the same name, and print the answer or write a file.

entry     the program: errors, Ctrl-C and broken pipes as exit statuses
commands  the commands and their options
answers   answers by name: as JSON, and in files
printing  models and answers as lines of text
learning  the command `learn`

`pgmengine.apps.reading` reads models, evidence, data and settings.
"""

from pgmengine.apps.cli.commands import app
from pgmengine.apps.cli.entry import main

__all__ = ["app", "main"]
