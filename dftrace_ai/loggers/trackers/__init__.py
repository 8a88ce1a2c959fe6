"""Interfaces to trackers, a file each; `registry` knows them by their keys."""
