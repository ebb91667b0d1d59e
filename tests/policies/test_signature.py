"""Signatures: those of minisign are accepted, what dprl signs minisign accepts, all else is refused."""

from __future__ import annotations

import base64
import shutil
import subprocess
from pathlib import Path

import pytest

import dprl
from dprl.apps.cli.main import _run
from dprl.policies.base import REQUIRED_KEYS as REQUIRED
from dprl.policies.signature import PublicKey, SecretKey, require, sign, verify

pytest.importorskip("cryptography", reason="the extra sign is not installed")

HERE = Path(__file__).parent / "golden"
SECRET, PUBLIC = (
    HERE.parent / "signing" / "test-only.key",
    HERE.parent / "signing" / "test-only.pub",
)
SIGNED = HERE.parent / "signing" / "tabular.dprl.minisig"


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv(REQUIRED, "")  # whatever a test sets is taken back
    shutil.copy(HERE / "0.1.0" / "tabular.dprl", tmp_path / "p.dprl")
    return tmp_path / "p.dprl"


@pytest.fixture
def key():
    return SecretKey.read(SECRET, str)


def test_a_signature_that_minisign_made(path):
    shutil.copy(SIGNED, f"{path}.minisig")
    signed = verify(path, PublicKey.read(PUBLIC))
    assert signed.key == PUBLIC.read_text().split()[5]
    assert signed.comment.endswith("file:tabular.dprl\thashed")
    assert verify(path, PublicKey.read(PUBLIC.read_text().split("\n")[1])) == signed


def test_signing_and_verifying(path, key):
    written = sign(path, key, "approved by the committee")
    assert written.name == "p.dprl.minisig"
    assert verify(path, PublicKey.read(PUBLIC)).comment == "approved by the committee"
    if shutil.which("minisign"):
        subprocess.run(
            ["minisign", "-V", "-p", PUBLIC, "-m", path], check=True, capture_output=True
        )


def lines_changed(path, number, change):
    lines = Path(f"{path}.minisig").read_text().split("\n")
    lines[number] = change(lines[number])
    Path(f"{path}.minisig").write_text("\n".join(lines))


FORGED = {
    "the file": (lambda p: p.write_bytes(p.read_bytes() + b"x"), "not what was signed"),
    "no signature": (lambda p: Path(f"{p}.minisig").unlink(), "there is no file"),
    "its comment": (lambda p: lines_changed(p, 2, lambda x: x + "!"), "trusted comment is not"),
    "not base64": (lambda p: lines_changed(p, 1, lambda x: "?" + x), "not what minisign writes"),
    "too short": (lambda p: lines_changed(p, 1, lambda x: x[:40]), "not what minisign writes"),
    "another key": (lambda p: lines_changed(p, 1, lambda x: x[:4] + "AAAA" + x[8:]), "not with"),
    "empty": (lambda p: Path(f"{p}.minisig").write_text(""), "not four lines"),
    "noise": (lambda p: Path(f"{p}.minisig").write_bytes(b"\xff" * 99), "cannot be read"),
    "a novel": (lambda p: Path(f"{p}.minisig").write_text("x" * 99_999), "cannot be read"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged(path, key, name):
    sign(path, key)
    change, words = FORGED[name]
    change(path)
    with pytest.raises(dprl.DprlError, match=words) as caught:
        verify(path, PublicKey.read(PUBLIC))
    assert len(str(caught.value).splitlines()) == 3


def test_only_signed_policies_are_opened_where_that_is_required(path, key, monkeypatch):
    require(str(PUBLIC))
    with pytest.raises(dprl.PolicyError, match="has no signature that holds"):
        dprl.load(path)
    with pytest.raises(dprl.PolicyError, match="has no signature that holds"):
        dprl.TablePolicy.load(path)
    sign(path, key)
    assert dprl.load(path).digest() == dprl.TablePolicy.load(path).digest()
    other = HERE / "0.1.0" / "gated.dprl"
    path.write_bytes(other.read_bytes())
    with pytest.raises(dprl.PolicyError, match="not what was signed"):
        dprl.load(path)
    monkeypatch.setenv(REQUIRED, "no key")
    with pytest.raises(dprl.PolicyError, match="must be a key, or the whole path"):
        dprl.load(path)


def test_a_key_is_a_key_and_never_a_file_of_that_name(path, key, tmp_path, monkeypatch):
    """A folder that brings policy, signature and a file called like the required key."""
    sign(path, key)
    ours = base64.b64encode(b"Ed" + bytes(range(40))).decode().replace("/", "A")
    monkeypatch.chdir(tmp_path)
    Path(ours).write_text(PUBLIC.read_text())
    for line in (ours, f" {ours}\n"):
        with pytest.raises(dprl.PolicyError, match="no signature that holds"):
            verify(path, PublicKey.read(line))
    assert _run(["verify", str(path), "--key", ours]) == 1
    monkeypatch.setenv(REQUIRED, ours)
    with pytest.raises(dprl.PolicyError, match="no signature that holds"):
        dprl.load(path)
    monkeypatch.setenv(REQUIRED, ours[:-3])  # a line that lost its end is no file either
    Path(ours[:-3]).write_text(PUBLIC.read_text())
    with pytest.raises(dprl.PolicyError, match="not what minisign writes"):
        dprl.load(path)
    Path("ours.pub").write_text(PUBLIC.read_text())
    monkeypatch.setenv(REQUIRED, "ours.pub")
    with pytest.raises(dprl.PolicyError, match="the whole path"):
        dprl.load(path)
    monkeypatch.setenv(REQUIRED, str(Path("ours.pub").absolute()))
    assert dprl.load(path).digest()


def test_a_service_takes_over_only_what_is_signed(path, key):
    pytest.importorskip("starlette", reason="the extra serve is not installed")
    from dprl.apps.serve.lifecycle import _stamp
    from dprl.apps.serve.served import Served, successor
    from dprl.policies.loading import deferring

    before = _stamp(str(path))
    sign(path, key)
    assert _stamp(str(path)) != before  # a signature that comes later is noticed
    require(str(PUBLIC))
    served = Served.of(deferring(path), False, True, False)
    Path(f"{path}.minisig").unlink()
    with pytest.raises(dprl.PolicyError, match="no signature that holds"):
        successor(path, served, token=True)


def test_the_commands(path, capsys):
    assert _run(["sign", str(path), "--key", str(SECRET)]) == 0
    assert _run(["verify", str(path), "--key", str(PUBLIC)]) == 0
    assert "Signed with the key" in capsys.readouterr().out
    assert _run(["serve", str(path), "--require-signed", str(path)]) == 1
    assert "public key of minisign" in capsys.readouterr().err
    Path(f"{path}.minisig").unlink()
    assert _run(["verify", str(path), "--key", str(PUBLIC)]) == 1
    assert _run(["serve", str(path), "--require-signed", str(PUBLIC)]) == 1
    assert "has no signature that holds" in capsys.readouterr().err
    path.write_bytes(b"no policy")
    monkey = _run(["sign", str(path), "--key", str(SECRET)])
    assert monkey == 1
    assert not Path(f"{path}.minisig").exists()


def test_keys_that_are_none(tmp_path, monkeypatch):
    for text in ("", "x", "untrusted comment: x\n" + "A" * 212, "untrusted comment: x\nRWQ="):
        (tmp_path / "k").write_text(text)
        for read in (PublicKey.read, lambda path: SecretKey.read(path, str)):
            with pytest.raises(dprl.DprlError):
                read(tmp_path / "k")


def test_a_password(tmp_path, monkeypatch, path, capsys):
    """A key under scrypt with small parameters, made as minisign makes one."""
    import base64
    import hashlib

    raw = bytearray(base64.b64decode(SECRET.read_text().split("\n")[1]))
    pair = bytes(raw[54:126])
    body = pair + hashlib.blake2b(b"Ed" + pair, digest_size=32).digest()
    ops, memory, salt = 32_768, 16_777_216, bytes(range(32))
    stream = hashlib.scrypt(b"word", salt=salt, n=1 << 10, r=8, p=1, dklen=104)
    raw = b"EdScB2" + salt + ops.to_bytes(8, "little") + memory.to_bytes(8, "little")
    raw += bytes(a ^ b for a, b in zip(body, stream, strict=True))
    file = tmp_path / "k.key"
    file.write_text("untrusted comment: x\n" + base64.b64encode(raw).decode() + "\n")
    assert SecretKey.read(file, lambda: "word") == SecretKey.read(SECRET, str)
    with pytest.raises(dprl.ParameterError, match="cannot be opened"):
        SecretKey.read(file, lambda: "wrong")
    assert _run(["sign", str(path), "--key", str(file)]) == 1
    assert "nobody can be asked" in capsys.readouterr().err
    monkeypatch.setenv("DPRL_SIGN_PASSWORD", "word")
    assert _run(["sign", str(path), "--key", str(file)]) == 0
