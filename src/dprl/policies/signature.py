"""Signatures of policy files: Ed25519, in the format of minisign (https://jedisct1.github.io/minisign).

A digest says that a file is whole; a signature says who vouches for it. ``policy.dprl.minisig``
lies beside the file and holds four lines: a comment that nobody vouches for; the signature of the
file's BLAKE2b-512 hash; a trusted comment (when, and of which file); the signature of the first
signature and the trusted comment. Keys are minisign's own (``minisign -G``); so minisign can verify
what dprl signs, and dprl what minisign signs.

Ed25519 comes from the package `cryptography` (the extra ``sign``).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dprl._core.disk import replacing
from dprl._core.optional import needed
from dprl.errors import ParameterError, PolicyError
from dprl.policies.base import REQUIRED_KEYS as REQUIRED

PLAIN, HASHED, SCRYPT, BLAKE = b"Ed", b"ED", b"Sc", b"B2"
UNTRUSTED, TRUSTED = "untrusted comment: ", "trusted comment: "
LONGEST = 1 << 14
"""Bytes that a key or a signature file may have."""


LINE = re.compile(r"RW[A-Za-z0-9+/=]{30,}")
"""What looks like a public key, whole or damaged."""


@dataclass(frozen=True)
class PublicKey:
    """Who may have signed.

    Attributes:
        number: The 8 bytes by which a signature names its key.
        key: The 32 bytes of the Ed25519 key.
    """

    number: bytes
    key: bytes

    @property
    def name(self) -> str:
        """The number as minisign shows it."""
        return self.number[::-1].hex().upper()

    @classmethod
    def read(cls, given: str | os.PathLike[str]) -> PublicKey:
        """A key from a file that minisign wrote (.pub), or from its line of base64 itself.

        What looks like a line is never the name of a file, which anybody may have put there.
        """
        text = os.fspath(given)
        if LINE.fullmatch(text.strip()):
            raw = _decoded(text.strip(), "the key", 42)
        else:
            raw = _decoded(_lines(Path(text), "public key")[1], text, 42)
        if raw[:2] != PLAIN:
            raise _no_key(text, "public")
        return cls(raw[2:10], raw[10:])


@dataclass(frozen=True, repr=False)
class SecretKey:
    """What signs.

    Attributes:
        number: The 8 bytes by which a signature names its key.
        seed: The 32 bytes from which the Ed25519 key is made.
    """

    number: bytes
    seed: bytes

    @classmethod
    def read(cls, path: str | os.PathLike[str], password: Callable[[], str]) -> SecretKey:
        """A key from a file that minisign wrote.

        Args:
            path: The file.
            password: Asked for the password, if the key has one.

        Raises:
            ParameterError: It is no such file, or the password is wrong.
        """
        raw = _decoded(_lines(Path(path), "secret key")[1], os.fspath(path), 158)
        kind, kdf, check, salt = raw[:2], raw[2:4], raw[4:6], raw[6:38]
        ops, memory = (int.from_bytes(raw[i : i + 8], "little") for i in (38, 46))
        body = raw[54:]
        if kind != PLAIN or check != BLAKE or kdf not in (SCRYPT, b"\0\0"):
            raise _no_key(os.fspath(path), "secret")
        if kdf == SCRYPT:
            stream = _stretched(password(), salt, ops, memory, len(body))
            body = bytes(a ^ b for a, b in zip(body, stream, strict=True))
        number, pair, checksum = body[:8], body[8:72], body[72:]
        expected = hashlib.blake2b(kind + number + pair, digest_size=32).digest()
        if kdf != SCRYPT and not any(checksum):  # minisign -W writes none
            expected = checksum
        if not hmac.compare_digest(expected, checksum):
            raise ParameterError(
                "the secret key cannot be opened.",
                os.fspath(path),
                "The password is wrong, or the file is damaged.",
            )
        return cls(number, pair[:32])


@dataclass(frozen=True)
class Signed:
    """A signature that holds.

    Attributes:
        key: The name of the key that made it.
        comment: The trusted comment: when it was made, and of which file.
    """

    key: str
    comment: str


def require(key: str | None) -> None:
    """Let this process, and those it starts, open only policies that are signed with a key.

    Args:
        key: A public key: a .pub file of minisign, or its line of base64. None requires nothing.
    """
    if key:
        public = PublicKey.read(key)
        _ed25519()
        line = base64.b64encode(PLAIN + public.number + public.key).decode()
        os.environ[REQUIRED] = line


def signature_of(path: str | os.PathLike[str]) -> Path:
    """Where the signature of a file lies."""
    return Path(f"{os.fspath(path)}.minisig")


def sign(path: str | os.PathLike[str], key: SecretKey, comment: str = "") -> Path:
    """Write the signature of a file beside it.

    Args:
        path: The file.
        key: The secret key.
        comment: The trusted comment. Default: the time and the name of the file, as minisign does.

    Returns:
        The file of the signature.

    Raises:
        ParameterError: The comment has more than one line.
    """
    source = Path(path)
    trusted = comment or f"timestamp:{int(time.time())}\tfile:{source.name}\thashed"
    if not all(ch.isprintable() or ch == "\t" for ch in trusted) or len(trusted) > 1000:
        raise ParameterError("a comment is one line of at most 1,000 visible characters.")
    private = _ed25519().Ed25519PrivateKey.from_private_bytes(key.seed)
    signature = private.sign(hashlib.blake2b(source.read_bytes()).digest())
    everything = private.sign(signature + trusted.encode())
    lines = (
        f"{UNTRUSTED}signature from dprl, to be checked with dprl verify or minisign -V",
        base64.b64encode(HASHED + key.number + signature).decode(),
        f"{TRUSTED}{trusted}",
        base64.b64encode(everything).decode(),
    )
    target = signature_of(path)
    with replacing(target) as part:
        part.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return target


def verify(path: str | os.PathLike[str], key: PublicKey, content: bytes | None = None) -> Signed:
    """Check the signature beside a file.

    Args:
        path: The file; its signature is PATH.minisig.
        key: Who must have signed it.
        content: What was read from the file, where that has been done already: it is this content
            that is checked then. Default None: the file is read.

    Returns:
        The name of the key, and the trusted comment.

    Raises:
        PolicyError: There is no signature, it is another's, or it is not of this content.
    """
    place = signature_of(path)
    if not place.is_file():
        raise _unsigned(path, f"there is no file {str(place)!r}")
    try:
        first, second, third, fourth = (*_lines(place, "signature"), "", "", "")[:4]
    except ParameterError as error:
        raise _unsigned(path, f"{error.what} {error.where}") from error
    if not first.startswith(UNTRUSTED) or not third.startswith(TRUSTED):
        raise _unsigned(path, f"{place}: it is not four lines as minisign writes them")
    raw, everything = _decoded(second, str(place), 74), _decoded(fourth, str(place), 64)
    kind, number, signature = raw[:2], raw[2:10], raw[10:]
    if number != key.number:
        theirs = PublicKey(number, b"").name
        raise _unsigned(path, f"it is signed with the key {theirs}, not with {key.name}")
    data = Path(path).read_bytes() if content is None else content
    if kind not in (PLAIN, HASHED):
        raise _unsigned(path, f"{place}: it is a kind of signature that minisign does not write")
    message = hashlib.blake2b(data).digest() if kind == HASHED else data
    comment = third.removeprefix(TRUSTED)
    public = _ed25519().Ed25519PublicKey.from_public_bytes(key.key)
    invalid = needed("cryptography.exceptions", "a signature", "dprl[sign]").InvalidSignature
    try:
        public.verify(signature, message)
    except invalid:
        raise _unsigned(path, "the file is not what was signed") from None
    try:
        public.verify(everything, signature + comment.encode())
    except invalid:
        raise _unsigned(path, "the trusted comment is not what was signed") from None
    return Signed(key.name, comment)


def _ed25519() -> Any:
    return needed("cryptography.hazmat.primitives.asymmetric.ed25519", "a signature", "dprl[sign]")


def _lines(path: Path, what: str) -> list[str]:
    """The lines of a key or a signature; an error where it is no such text."""
    try:
        if path.stat().st_size > LONGEST:
            raise ValueError("too long")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ParameterError(
            f"{str(path)!r} cannot be read as a {what} of minisign.",
            str(getattr(error, "strerror", None) or "it is no such text"),
            "Make keys with minisign -G, or name another file.",
        ) from error
    return [*lines, "", ""] if len(lines) < 2 else lines


def _decoded(text: str, where: str, length: int) -> bytes:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != length:
        raise PolicyError(
            "a key or a signature is not what minisign writes.",
            where,
            "Copy it again from where it was made.",
        )
    return raw


def _no_key(where: str, kind: str) -> ParameterError:
    return ParameterError(
        f"{where!r} is no {kind} key of minisign.", do="Make one with minisign -G."
    )


def _unsigned(path: str | os.PathLike[str], why: str) -> PolicyError:
    return PolicyError(
        f"{os.fspath(path)!r} has no signature that holds.",
        why,
        "Do not use it. Get it again, with its .minisig, from who made it.",
    )


def _stretched(password: str, salt: bytes, ops: int, memory: int, length: int) -> bytes:
    """What a password becomes by scrypt, with the parameters that libsodium picks."""
    ops, r, p = max(ops, 32_768), 8, 1
    most = ops // (r * 4) if ops < memory // 32 else memory // (r * 128)
    log_n = next((i for i in range(1, 63) if 1 << i > most // 2), 63)
    if ops >= memory // 32:
        p = min((ops // 4) // (1 << log_n), 0x3FFFFFFF) // r
    if (need := 128 * r * ((1 << log_n) + p)) > 2 << 30 or p < 1:
        raise ParameterError(
            "the password of the secret key takes more memory to try than any key of minisign.",
            f"{need:,} bytes",
            "The file is damaged.",
        )
    return hashlib.scrypt(
        password.encode(), salt=salt, n=1 << log_n, r=r, p=p, maxmem=need + (1 << 20), dklen=length
    )
