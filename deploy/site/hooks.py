"""Adds files outside docs/ to the site if docs/ links to them.

The pages are written to be read in the repository, where they link to READMEs, sample
configurations and code. In the site the READMEs named in the navigation are pages, and other
files are copied beside them, as text.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(\]\()([^)\s]+)(\))|(<img[^>]* src=\")([^\"]+)(\")")
ICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><path fill="none" stroke="#3f51b5"
stroke-width="2" d="M12 13V3M12 13l9 5M12 13l-9 5"/></svg>"""


def navigated(entry):
    """The pages that the navigation names."""
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        entry = list(entry.values())
    if isinstance(entry, list):
        for e in entry:
            yield from navigated(e)


def section(nav, title):
    """The pages of a section of the navigation."""
    for entry in nav:
        for name, pages in entry.items() if isinstance(entry, dict) else ():
            if name == title:
                return pages
            found = section(pages, title) if isinstance(pages, list) else None
            if found is not None:
                return found
    return None


def on_config(config):
    """Adds pages missing from the navigation to their sections."""
    named = set(navigated(config.nav))
    for path in sorted(Path(config.docs_dir).rglob("*.md")):
        page = path.relative_to(config.docs_dir).as_posix()
        if page not in named:
            title = {"adr": "Decisions", "results": "Results"}.get(page.split("/")[0], "Build on it")
            section(config.nav, title).append(page)
    return config


def on_files(files, config):
    for page in navigated(config.nav):
        if files.get_file_from_path(page) is None and (ROOT / page).is_file():
            files.append(File.generated(config, page, content=(ROOT / page).read_text()))
    files.append(File.generated(config, "images/favicon.svg", content=ICON))
    return files


def on_page_markdown(markdown, page, config, files):
    source = page.file.src_uri
    inside = (Path(config.docs_dir) / source).is_file()
    folder = posixpath.dirname(("docs/" if inside else "") + source)  # in the repository

    def link(target: str) -> str:
        path, mark, fragment = target.partition("#")
        if not path or re.match(r"[a-z]+:|/|\.\./\.\./issues", path):
            return target
        there = posixpath.normpath(posixpath.join(folder, path))
        in_site = there.removeprefix("docs/") if there.startswith("docs/") else there
        if files.get_file_from_path(in_site) is None:
            real = ROOT / there
            if real.is_dir():
                return ""
            if not real.is_file():
                raise SystemExit(f"{folder}: {target} does not exist")
            in_site = "source/" + there + ("" if real.suffix in (".png", ".svg", ".json") else ".txt")
            if files.get_file_from_path(in_site) is None:
                files.append(File.generated(config, in_site, abs_src_path=str(real)))
            return posixpath.relpath(in_site, posixpath.dirname(source) or ".")
        return posixpath.relpath(in_site, posixpath.dirname(source) or ".") + mark + fragment

    def replace(m: re.Match) -> str:
        before, target, after = (m[1], m[2], m[3]) if m[2] else (m[4], m[5], m[6])
        return before + link(target) + after

    markdown = LINK.sub(replace, markdown)
    return re.sub(r"\[([^\]]*)\]\(\)", r"\1", markdown)  # folders have no page

