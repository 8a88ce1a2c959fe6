"""Traces as files for other tools: Parquet, one file for Perfetto, dftracer's own form."""

from __future__ import annotations

from dftrace_ai.analysis.converting.converting import FORMS, Form, convert
from dftrace_ai.analysis.converting.report import Converted, ConvertedFile

__all__ = ["FORMS", "Converted", "ConvertedFile", "Form", "convert"]
