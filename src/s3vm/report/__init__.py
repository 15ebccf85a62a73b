"""Reports: one HTML file that needs nothing else, for a browser, a phone or a printer."""

from s3vm.report.fit import of_fit, sections, settings
from s3vm.report.page import Section, write

__all__ = ["Section", "of_fit", "sections", "settings", "write"]
