"""Other distributions in our packages' folders are named when something fails."""

from __future__ import annotations

import pytest

from planner.cli.neighbours import neighbours, neighbours_said


@pytest.fixture
def site(tmp_path):
    """Installs distributions into a folder: their metadata, and the files that these name."""

    def install(name: str, *files: str) -> list[str]:
        folder = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "RECORD").write_text("".join(f"{file},,\n" for file in files))
        # from Python 3.12 on, what is not there counts for nothing
        for file in (file for file in files if not file.startswith("..")):
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).touch()
        return [str(tmp_path)]

    return install


def test_a_distribution_with_a_module_in_one_of_our_packages_is_named(site):
    site("meshwright", "planner/planning.py", "api/app.py", "executor/launcher.py")
    path = site("web-things", "api/app.py", "api/views.py", "web/__init__.py")
    assert neighbours(path) == (("api", "web-things"),)
    said = neighbours_said(path)
    assert said.startswith("web-things has files in `api`, a package of meshwright: ")
    assert "environment of its own" in said


def test_a_single_file_of_the_same_name_and_other_packages_are_no_neighbours(site):
    site("meshwright", "planner/planning.py", "api/app.py")
    path = site("numpy", "numpy/api/__init__.py", "api.py", "../../bin/api")
    assert (neighbours(path), neighbours_said(path)) == ((), "")


def test_nothing_here_is_installed_beside_it():
    assert neighbours() == ()
