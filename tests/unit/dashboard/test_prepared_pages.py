"""Pages are compiled when the service starts, not for its first visitor."""

from pathlib import Path

from api.dashboard import rendering

TEMPLATES = Path(rendering.__file__).parent / "templates"


def test_every_page_is_compiled(monkeypatch):
    rendering.prepare()
    environment = rendering._environment()
    monkeypatch.setattr(environment, "compile", None)
    for path in TEMPLATES.glob("*.html"):
        assert environment.get_template(path.name).filename == str(path)
