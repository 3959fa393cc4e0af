"""The command line as `python -m pgmengine.apps.cli`."""

from pgmengine.apps.cli.entry import main

if __name__ == "__main__":
    main()
