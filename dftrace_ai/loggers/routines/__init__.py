"""Routines, one for each kind of value that is logged; `registry` knows them by their keys."""
