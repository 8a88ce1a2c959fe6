"""Spools, traces and numbers of files that were cut, removed, changed or closed."""

# What the programs here begin with.
TRAINED = """
import fcntl, json, os, resource, shutil, signal, sys, threading, time
from pathlib import Path
import dftrace_ai
from dftrace_ai import ai

def trained(steps, node=ai.compute.forward):
    for step in range(steps):
        with node(step=step):
            pass
"""
