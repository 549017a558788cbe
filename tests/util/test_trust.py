"""Files that another user can have written are told from our own."""

import os

import pytest

from dcdjax.util import trust

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners")


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "above" / "root"
    trust.make_private(root / "a" / "b", root)
    path = root / "a" / "b" / "file"
    path.touch(0o600)
    return root, path


def test_what_is_made_is_private(tree):
    root, path = tree
    assert trust.reason_against(path, root) is None
    for folder in path.parents[:3]:
        assert folder.stat().st_mode & 0o777 == 0o700
    root.chmod(0o750)
    trust.make_private(path.parent, root)
    assert root.stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("mode", [0o720, 0o702])
@pytest.mark.parametrize("level", range(4))
def test_what_others_can_write_to(tree, mode, level):
    root, path = tree
    one = (path, *path.parents)[level]
    one.chmod(mode)
    assert trust.reason_against(path, root) == f"other users can write to {one}"
    assert trust.reason_against(path, root / "..") is not None
    root.parent.chmod(0o777)  # above the root
    one.chmod(0o700)
    assert trust.reason_against(path, root) is None


@pytest.mark.parametrize("level", range(4))
def test_what_belongs_to_another(tree, level, monkeypatch):
    root, path = tree
    one = (path, *path.parents)[level]
    if os.geteuid() == 0:
        os.chown(one, 12345, -1)
    else:
        one, level = path, 0
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert trust.reason_against(path, root) == f"{one} belongs to another user"


def test_a_shared_folder_where_nobody_may_replace_files(tree):
    root, path = tree
    root.chmod(0o1777)
    assert trust.reason_against(path, root) is None


def test_what_does_not_exist_is_passed_over(tree):
    root, path = tree
    assert trust.reason_against(path.with_name("other"), root) is None
    assert trust.reason_against(root / "c" / "d", root) is None


def test_a_link_leads_to_what_it_names(tree, tmp_path):
    root, _ = tree
    (root / "link").symlink_to(tmp_path)
    assert trust.reason_against(root / "link", root) == f"{tmp_path} is outside of {root}"
