"""The explorer: a picture of a model that answers as evidence is clicked, in a widget or page."""
