"""The examination of an installation: facts about the machine and the package, and a self-test."""
