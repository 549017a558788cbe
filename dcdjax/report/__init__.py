"""Write a page to explore an embedding in a browser."""

from dcdjax.report.page import Page, page

__all__ = ["Page", "page"]
