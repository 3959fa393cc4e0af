"""Belief networks in XML: the parser, XMLBIF files, and .xdsl files of GeNIe."""
