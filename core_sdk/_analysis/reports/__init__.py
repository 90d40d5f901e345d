"""Experiments as documents to mail (an annex)."""

from core_sdk._analysis.reports.document import report_html
