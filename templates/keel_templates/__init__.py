"""Plugin packages as ``keel new`` renders them: Jinja2 files under ``scaffold/<level>``."""
