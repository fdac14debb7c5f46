"""Turns what commands return into lines of text for people. Nothing here prints.

A line is text and a style; whoever prints it escapes what must not reach a terminal
(``text.shown``), so that no renderer can forget to.
"""
