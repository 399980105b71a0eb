"""Encryption of saved logins at rest: AES-256-GCM, with the login's name bound to the content.

The key comes from ``PEAKS_STATE_KEY`` (a passphrase, or 32 bytes in base64 or hex), from the open file
descriptor that ``PEAKS_STATE_KEY_FD`` names, or, if ``PEAKS_STATE_KEY_KEYRING`` is set, from the system's
keyring under that user name. Where there is a key, what is saved is encrypted.

A descriptor is open in the process that was started with it alone: pytest's controller reads it and hands
what it read over to its workers.
"""

from __future__ import annotations

import base64
import binascii
import functools
import json
import os
import re
from collections.abc import Mapping
from typing import Any

from pytest_peaks.errors import StateKeyError, StateLockedError

KEY_ENV = "PEAKS_STATE_KEY"
KEY_FD_ENV = "PEAKS_STATE_KEY_FD"
KEYRING_ENV = "PEAKS_STATE_KEY_KEYRING"
KEYRING_SERVICE = "pytest-peaks"
MARK = "peaksEncrypted"
VERSION = 1
KEY_BYTES = 32
NONCE_BYTES = 12
SALT_BYTES = 16
# A key from a passphrase: 2**15, 8, 1 take 0.1 s. Source: RFC 7914, and OWASP's advice for scrypt.
_SCRYPT = {"n": 2**15, "r": 8, "p": 1}
INSTALL = "pip install 'pytest-peaks[encrypt]'"


def is_encrypted(text: str) -> bool:
    """Whether `text` is what :func:`encrypt` wrote, whole or not."""
    return text.lstrip().startswith("{") and f'"{MARK}"' in text[:200]


def has_key() -> bool:
    """Whether a key is set in the environment."""
    return any(os.environ.get(name) for name in (KEY_ENV, KEY_FD_ENV, KEYRING_ENV))


def hand_over() -> dict[str, str]:
    """For a worker of this process: what its descriptor holds, or why it can't be read; empty if none is set."""
    if os.environ.get(KEY_ENV) or not os.environ.get(KEY_FD_ENV):
        return {}
    try:
        return {"secret": _secret()}
    except StateKeyError as error:
        return {"message": error.message, "hint": error.hint}


def receive(given: Mapping[str, str]) -> None:
    """In a worker: take what the controller read from its descriptor."""
    _handed_over.clear()
    _handed_over.update(given)


# What :func:`receive` was given. In this process alone, and never in its environment.
_handed_over: dict[str, str] = {}


def encrypt(text: str, name: str) -> str:
    """`text` as a JSON envelope that only the key opens, and only under `name`.

    :raises StateKeyError: the key can't be used, or ``cryptography`` is not installed.
    """
    salt, nonce = os.urandom(SALT_BYTES), os.urandom(NONCE_BYTES)
    sealed = _cipher(_key(salt)).encrypt(nonce, text.encode(), _bound(name))
    envelope = {
        MARK: VERSION,
        "salt": _b64(salt),
        "nonce": _b64(nonce),
        "data": _b64(sealed),
    }
    return json.dumps(envelope) + "\n"


def decrypt(text: str, name: str, where: str) -> str:
    """What :func:`encrypt` was given.

    :raises StateLockedError: there is no key, it is another one, or the file is cut or changed.
    :raises StateKeyError: the key can't be used, or ``cryptography`` is not installed.
    """
    if not has_key():
        raise StateLockedError(
            f"{where} is encrypted, and no key is set",
            hint=f"set {KEY_ENV} to the key that it was saved with",
        )
    try:
        envelope = json.loads(text)
        salt, nonce, data = (
            base64.b64decode(envelope[key], validate=True) for key in ("salt", "nonce", "data")
        )
        version = envelope[MARK]
    except (ValueError, KeyError, TypeError, binascii.Error):
        raise StateLockedError(f"{where} is encrypted, and cut off or damaged", hint=_KEPT) from None
    if version != VERSION:
        raise StateLockedError(f"{where} was encrypted by another version of pytest-peaks", hint=_KEPT)
    cipher = _cipher(_key(salt))
    from cryptography.exceptions import InvalidTag

    try:
        opened: bytes = cipher.decrypt(nonce, data, _bound(name))
    except (InvalidTag, ValueError):
        raise StateLockedError(
            f"{where} cannot be decrypted: the key is another one, or the file was changed or renamed",
            hint=_KEPT,
        ) from None
    return opened.decode(errors="replace")


_KEPT = f"the file is kept as it is; set {KEY_ENV} to its key, or save the login anew"


def _bound(name: str) -> bytes:
    return f"pytest-peaks state v{VERSION} {name}".encode()


def _cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise StateKeyError(
            "a key is set, and the package cryptography is not installed", hint=INSTALL
        ) from None
    return AESGCM(key)


def _key(salt: bytes) -> bytes:
    secret = _secret()
    raw = _as_bytes(secret)
    return raw if raw is not None else _derived(secret, salt)


@functools.lru_cache(maxsize=64)
def _derived(secret: str, salt: bytes) -> bytes:
    import hashlib

    return hashlib.scrypt(secret.encode(), salt=salt, dklen=KEY_BYTES, maxmem=64 * 1024 * 1024, **_SCRYPT)


def _as_bytes(secret: str) -> bytes | None:
    """The 32 bytes that `secret` spells in hex or base64; None if it is a passphrase."""
    if re.fullmatch(r"[0-9a-fA-F]{64}", secret):
        return bytes.fromhex(secret)
    try:
        raw = base64.b64decode(secret.replace("-", "+").replace("_", "/"), validate=True)
    except (ValueError, binascii.Error):
        return None
    return raw if len(raw) == KEY_BYTES else None


def _secret() -> str:
    given = os.environ.get(KEY_ENV, "").strip()
    if given:
        return given
    if "message" in _handed_over:
        raise StateKeyError(_handed_over["message"], hint=_handed_over["hint"])
    if _handed_over:
        return _handed_over["secret"]
    descriptor = os.environ.get(KEY_FD_ENV)
    if descriptor:
        return _from_descriptor(descriptor)
    return _from_keyring(os.environ.get(KEYRING_ENV, ""))


@functools.cache
def _from_descriptor(text: str) -> str:
    """What is to be read from an open descriptor; once, since a pipe can be read but once."""
    try:
        with os.fdopen(os.dup(int(text)), encoding="utf-8") as file:
            secret = file.read().strip()
    except (ValueError, OSError) as error:
        raise StateKeyError(
            f"{KEY_FD_ENV}={text} is no open file descriptor: {getattr(error, 'strerror', None) or error}",
            hint=f"{KEY_FD_ENV}=3 peaks … 3<keyfile",
        ) from None
    if not secret:
        raise StateKeyError(f"nothing was to be read from {KEY_FD_ENV}={text}", hint="it has to hold the key")
    return secret


def _from_keyring(user: str) -> str:
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        raise StateKeyError(
            f"{KEYRING_ENV} is set, and the package keyring is not installed", hint="pip install keyring"
        ) from None
    try:
        secret = keyring.get_password(KEYRING_SERVICE, user)
    except (KeyringError, RuntimeError) as error:
        raise StateKeyError(
            f"the keyring does not answer: {type(error).__name__}", hint=f"set {KEY_ENV} instead"
        ) from None
    if not secret:
        raise StateKeyError(
            f"the keyring has no key for {user!r}", hint=f"keyring set {KEYRING_SERVICE} {user}"
        )
    return str(secret)


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
