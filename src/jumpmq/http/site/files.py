"""The page's static files, from the package.

The files are few and small, and are kept in memory, plain and compressed. Modules of the first view are one file
(:mod:`~.bundle`), so that a first visit needs seven requests. Browsers request the page itself (``/``) at each visit;
the answer is 304 if the page is unchanged. All other files are below ``/assets/VERSION/``, where the version is a hash
of all files: a browser requests each file once per version, and never shows a stale file.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from jumpmq._version import __version__
from jumpmq.http.site.bundle import bundle, loaded_later, order

PLACE = "static"
PAGE = "index.html"
VERSION_MARK = b"{version}"
RELEASE_MARK = b"{release}"

MAIN = "main.js"
STYLES = ("vendor/uplot.css", "style.css")
"""Style sheets, served as one file under the last name."""

SCRIPTS = {"theme.js", "vendor/uplot.js"}
"""Non-module scripts."""

KINDS = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
"""Media types by file suffix."""

PROTECTION = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""Security headers."""

FOREVER = "public, max-age=31536000, immutable"


@dataclass
class StaticFile:
    """A static file with headers."""

    kind: str
    octets: bytes

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.octets, 9, mtime=0)

    @cached_property
    def tag(self) -> str:
        return f'"{hashlib.sha256(self.octets).hexdigest()[:16]}"'


@lru_cache(maxsize=1)
def site() -> tuple[str, dict[str, StaticFile]]:
    """Return the version of the files, and the files by path."""
    found = dict(sorted(_read(resources.files(__package__) / PLACE, "")))
    digest = hashlib.sha256(b"\0".join(path.encode() + b"\0" + octets for path, octets in found.items()))
    version = digest.hexdigest()[:12]
    found[STYLES[-1]] = b"\n".join(found[path] for path in STYLES)
    found |= {path: text.encode() for path, text in _modules(found).items()}
    page = found[PAGE].replace(VERSION_MARK, version.encode())
    page = page.replace(RELEASE_MARK, __version__.encode())
    found[PAGE] = page
    return version, {path: StaticFile(KINDS[path.rpartition(".")[2]], octets) for path, octets in found.items()}


def _modules(found: dict[str, bytes]) -> dict[str, str]:
    """Return the bundle, and the modules loaded on demand, by path."""
    sources = {path: octets.decode() for path, octets in found.items() if path.endswith(".js") and path not in SCRIPTS}
    bundled = order(sources, MAIN)
    later = sources.keys() - set(bundled)
    return {path: loaded_later(path, sources[path], bundled, MAIN) for path in later} | {MAIN: bundle(sources, MAIN)}


def _read(place: resources.abc.Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found = []
    for one in place.iterdir():
        if one.is_dir():
            found += _read(one, f"{prefix}{one.name}/")
        elif one.name.rpartition(".")[2] in KINDS:
            found.append((prefix + one.name, one.read_bytes()))
    return found


async def page(request: Request) -> Response:
    """``GET /``: the page."""
    return _served(request, site()[1][PAGE], "no-cache")


async def asset(request: Request) -> Response:
    """``GET /assets/{version}/{path}``: a static file of the page."""
    version, files = site()
    found = files.get(request.path_params["path"])
    if found is None or request.path_params["version"] != version:
        return Response("Not found\n", 404, PROTECTION, "text/plain")
    return _served(request, found, FOREVER)


async def icon(request: Request) -> Response:
    """``GET /favicon.ico``: the icon, requested by browsers."""
    return _served(request, site()[1]["icon.svg"], "max-age=86400")


def _served(request: Request, found: StaticFile, caching: str) -> Response:
    headers = {**PROTECTION, "Cache-Control": caching, "ETag": found.tag, "Vary": "Accept-Encoding"}
    if found.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    body = found.octets
    if "gzip" in request.headers.get("accept-encoding", ""):
        body, headers["Content-Encoding"] = found.compressed, "gzip"
    return Response(body, headers={**headers, "Content-Type": found.kind})


ROUTES = [
    Route("/", page, methods=["GET"]),
    Route("/assets/{version}/{path:path}", asset, methods=["GET"]),
    Route("/favicon.ico", icon, methods=["GET"]),
]
