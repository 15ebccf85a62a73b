"""What is written keeps the permissions, links and files that were there; nothing else is ever replaced."""

import os
import stat

import numpy as np
import pytest

import s3vm
from s3vm import TSG, S3VMClassifier
from s3vm._utils import atomic
from s3vm.sources.readers import TableError, Writer

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions and links are those of Unix")
X = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
SOME = np.where(np.arange(60) < 20, (X[:, 0] > 0).astype(int), -1)


@pytest.fixture(scope="module")
def clf():
    solver = TSG(max_iter=3, batch_size=8, n_features=8)
    return S3VMClassifier(solver, gamma=1.0, unlabeled_weight=0.5, random_state=0).fit(X, SOME)


@pytest.fixture
def umask():
    """Sets the mask of permissions, until the end of the test."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def _mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def _writers(clf, name):
    """Whatever writes files, each into a file of that name."""

    def predictions():
        with Writer(f"{name}.csv") as out:
            out.write({"prediction": [1]})

    yield name, lambda: clf.save(name)
    yield name, lambda: atomic.write(name, b"new")
    yield f"{name}.csv", predictions


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o400, 0o4755])
def test_permissions_are_kept(clf, tmp_path, mode):
    for name, write in _writers(clf, str(tmp_path / "file")):
        path = tmp_path / name
        path.write_bytes(b"old")
        path.chmod(mode)
        write()
        assert path.read_bytes() != b"old"
        assert _mode(path) == mode & 0o777, f"{name}: rights to run as another user are not handed on"


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_new_files_are_as_private_as_the_umask(clf, tmp_path, umask, mask):
    umask(mask)
    for name, write in _writers(clf, str(tmp_path / "file")):
        write()
        assert _mode(tmp_path / name) == 0o666 & ~mask
        (tmp_path / name).unlink()


def test_nobody_else_reads_the_new_content_of_a_private_file(tmp_path, umask):
    umask(0)
    path = tmp_path / "private"
    path.write_bytes(b"old")
    path.chmod(0o600)
    with atomic.replacing(path) as temporary:
        temporary.write_bytes(b"secret")
        assert _mode(temporary) == 0o600
    assert (path.read_bytes(), _mode(path)) == (b"secret", 0o600)


def test_the_group_keeps_its_file_or_loses_it(tmp_path, monkeypatch):
    """Where the new file cannot have the group of the old one, no other group can read it."""
    path = tmp_path / "shared"
    path.write_bytes(b"old")
    path.chmod(0o660)
    group, asked = path.stat().st_gid, []

    def refused(name, owner, of_group):
        asked.append((owner, of_group))
        raise PermissionError

    monkeypatch.setattr(os, "chown", refused)
    atomic.write(path, b"new")
    assert asked == [(os.getuid(), group), (-1, group)]
    assert _mode(path) == 0o600


def test_links_stay_links(clf, tmp_path):
    (tmp_path / "there").mkdir()
    for name, write in _writers(clf, str(tmp_path / "link")):
        kept = tmp_path / "there" / name.rpartition("/")[2]
        (tmp_path / name).symlink_to(kept)
        for _ in range(2):
            write()
            assert (tmp_path / name).is_symlink()
            assert kept.stat().st_size > 0
        (tmp_path / name).unlink()


def test_devices_and_pipes_are_not_replaced(clf, tmp_path):
    os.mkfifo(tmp_path / "file")
    os.mkfifo(tmp_path / "file.csv")
    for name, write in _writers(clf, str(tmp_path / "file")):
        with pytest.raises((OSError, TableError), match="it is not a plain file"):
            write()
        assert stat.S_ISFIFO((tmp_path / name).stat().st_mode)
    with pytest.raises(OSError, match="it is not a plain file"):
        clf.save("/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_name_as_long_as_names_can_be(clf, tmp_path):
    path = tmp_path / ("m" * 250 + ".s3vm")
    clf.save(path)
    clf.save(path)
    assert s3vm.load(path).n_iter_ == 3


@pytest.mark.parametrize("is_link", [False, True])
def test_a_checkpoint_replaces_checkpoints_only(clf, tmp_path, is_link):
    run, old, elsewhere = tmp_path / "run", tmp_path / "run.old", tmp_path / "elsewhere"
    if is_link:
        run.symlink_to(elsewhere)
    clf.fit(X, SOME, checkpoint=run)
    first = run.read_bytes()
    clf.fit(X, SOME, checkpoint=run)
    assert old.read_bytes() == first
    assert run.is_symlink() == is_link
    assert run.read_bytes()
    clf.fit(X, SOME, checkpoint=run)  # run.old is a checkpoint, so it may go
    old.write_text("my notes")
    with pytest.raises(ValueError, match=r"run\.old is another kind of file: give another name"):
        clf.fit(X, SOME, checkpoint=run)
    assert old.read_text() == "my notes"
    clf.fit(X, SOME, checkpoint=run, resume=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere"] * is_link + ["run", "run.old"]
    clf.save(old)
    with pytest.raises(ValueError, match=r"run\.old is another kind of file"):
        clf.fit(X, SOME, checkpoint=run)
