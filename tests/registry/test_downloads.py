"""Downloads have a folder each, are removed one by one, and nothing else ever is."""

from __future__ import annotations

from pliant.registry.downloads import Downloads


def test_each_download_has_an_empty_folder_of_its_own_under_one_root():
    downloads = Downloads()
    first, second = downloads.fresh(), downloads.fresh()
    assert first != second and first.parent == second.parent
    assert first.is_dir() and not list(first.iterdir())


def test_a_download_is_removed_by_any_path_within_it_and_the_others_stay():
    downloads = Downloads()
    first, second = downloads.fresh(), downloads.fresh()
    (first / "model" / "bundle").mkdir(parents=True)
    downloads.remove(first / "model" / "bundle")
    assert not first.exists() and second.is_dir()
    downloads.remove(second)
    assert not second.exists() and first.parent.is_dir()


def test_a_path_elsewhere_is_left_alone_also_before_the_first_download(tmp_path):
    downloads = Downloads()
    downloads.remove(tmp_path)
    downloads.fresh()
    downloads.remove(tmp_path)
    assert tmp_path.is_dir()
