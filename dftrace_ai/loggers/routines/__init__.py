"""Routines, one for each kind of value that is logged; `finding` knows them by their keys."""
