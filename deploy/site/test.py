#!/usr/bin/env python3
"""Tests the site: every internal link has a target, nothing is loaded from other sites, and the
shell blocks that follow a line <!-- run --> succeed. <!-- run: COMMANDS --> has those
commands run before the block.

    deploy/site/test.py [PAGE.md…]     pages whose blocks are run; all of docs/ without

Blocks of a page run one after the other in one shell, in an empty folder, with bin/ on the path,
and as root in a network namespace of their own.
"""

import html.parser
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "site"
RUN = re.compile(r"^<!-- run(?:: (.*?))? -->\n```\w*\n(.*?)^```$", re.M | re.S)
LIMIT = 180  # time limit for a page's blocks, seconds


class Page(html.parser.HTMLParser):
    """Collects a page's links, loaded files and anchors."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        if "id" in a:
            self.anchors.add(a["id"])
        if tag == "a" and a.get("href"):
            self.links.append(a["href"])
        if tag in ("img", "script", "source") and a.get("src"):
            self.loads.append(a["src"])
        if tag == "link" and a.get("href") and a.get("rel") != "canonical":
            self.loads.append(a["href"])


def dead_links() -> list[str]:
    pages = {p: Page(p.read_text()) for p in SITE.rglob("*.html")}
    if len(pages) < 20:
        return [f"{SITE} has {len(pages)} pages: make site"]
    bad = []
    for path, page in pages.items():
        for link in page.links + page.loads:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                if link in page.loads:
                    bad.append(f"{path.relative_to(SITE)} loads {link}")
                continue
            # 404.html is served at any address, so its links start at the root.
            base = SITE if url.path.startswith("/") else path.parent
            to = (base / unquote(url.path).lstrip("/")).resolve() if url.path else path
            if to.is_dir():
                to /= "index.html"
            if not to.is_file():
                bad.append(f"{path.relative_to(SITE)}: {link} has no target")
            elif (
                url.fragment
                and to in pages
                and unquote(url.fragment) not in pages[to].anchors
                and not url.fragment.startswith("__")
            ):
                bad.append(f"{path.relative_to(SITE)}: {link}: no such anchor")
    links = sum(len(p.links) + len(p.loads) for p in pages.values())
    print(f"{len(pages)} pages, {links} links, {len(bad)} dead")
    return bad


def run_blocks(page: Path) -> list[str]:
    blocks = RUN.findall(page.read_text())
    if not blocks:
        return []
    script = "set -euo pipefail\n" + ("ip link set lo up\n" if os.geteuid() == 0 else "") + "".join(
        f"echo '+ block {i + 1}'\n{before}\n{block}" for i, (before, block) in enumerate(blocks)
    )
    shell = ["unshare", "--net", "bash", "-c", script] if os.geteuid() == 0 else ["bash", "-c", script]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
        env = dict(os.environ, PATH=f"{ROOT / 'bin'}:{os.environ['PATH']}")
        p = subprocess.Popen(shell, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            status: object = p.wait(LIMIT)
        except subprocess.TimeoutExpired:
            status = f"no end after {LIMIT} s"
        try:
            os.killpg(p.pid, signal.SIGKILL)  # the blocks' background processes
        except ProcessLookupError:
            pass
        p.wait()
        log.seek(0)
        text = log.read().decode(errors="replace")
    print(f"{page.relative_to(ROOT)}: {len(blocks)} blocks, {'ok' if status == 0 else status}")
    return [] if status == 0 else [f"{page.relative_to(ROOT)}: {status}\n{text[-3000:]}"]


def main() -> int:
    pages = [Path(p).resolve() for p in sys.argv[1:]] or sorted((ROOT / "docs").glob("*.md"))
    bad = dead_links()
    for page in pages:
        bad += run_blocks(page)
    for b in bad:
        print(b, file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
