"""Assets: the static files of pages, in memory and compressed once.

They need neither the disk nor a thread, so that pages have them whatever else the service waits
for.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request, Response

from api.entity_tags import unless_known

PLOTLY = "plotly.min.js"
SWAGGER_UI = ("swagger-ui-bundle.js", "swagger-ui.css")
_FOLDER = Path(__file__).parent / "static"
_FOR_A_YEAR = "public, max-age=31536000, immutable"
_VERSION_LENGTH = 12

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """A file as it is kept, compressed; `url` changes with its content."""

    url: str
    media_type: str
    compressed: bytes

    @property
    def content(self) -> bytes:
        """Return the file itself, which few clients ask for."""
        return gzip.decompress(self.compressed)


@router.get("/static/{name:path}", response_class=Response)
async def read_asset(request: Request, name: str) -> Response:
    """Return a static file; one that is asked for by its version never changes."""
    asset = assets().get(name)
    if asset is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no static file {name!r}")
    encoded = "gzip" in request.headers.get("accept-encoding", "")
    headers = {
        "Cache-Control": _FOR_A_YEAR if "v" in request.query_params else "no-cache",
        "Vary": "Accept-Encoding",
        **({"Content-Encoding": "gzip"} if encoded else {}),
    }
    content = asset.compressed if encoded else asset.content
    response = Response(content, media_type=asset.media_type, headers=headers)
    return unless_known(request, response)


@cache
def assets() -> dict[str, Asset]:
    """Return all static files by name."""
    paths = {path.name: path for path in sorted(_FOLDER.iterdir())}
    found = {name: _asset(name, path.read_bytes()) for name, path in paths.items()}
    found[PLOTLY] = _shipped_asset("plotly", f"package_data/{PLOTLY}")
    for name in SWAGGER_UI:
        found[name] = _shipped_asset("fastapi_offline", f"static/{name}")
    return found


def _shipped_asset(package: str, path: str) -> Asset:
    """Return a file that another distribution has in its package.

    Raises:
        FileNotFoundError: if it is not installed.
    """
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError(f"{package} is not installed: install meshwright[service]")
    file = Path(found.submodule_search_locations[0]) / path
    return _asset(file.name, file.read_bytes(), version=version(package))


def _asset(name: str, content: bytes, *, version: str | None = None) -> Asset:
    version = version or hashlib.sha256(content).hexdigest()[:_VERSION_LENGTH]
    return Asset(
        url=f"/static/{name}?v={version}",
        media_type=mimetypes.guess_type(name)[0] or "application/octet-stream",
        compressed=gzip.compress(content, compresslevel=6, mtime=0),
    )
